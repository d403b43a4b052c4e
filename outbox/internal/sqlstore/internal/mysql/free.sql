({all} = 1 OR m.topic IN ({topics_with_sinks}))
	AND m.topic NOT IN ({full_topics})
	AND (m.`key` = '' OR m.seq <= COALESCE((
		SELECT e.seq FROM {messages} AS e FORCE INDEX (retried) WHERE e.retried_key = m.`key`
		ORDER BY e.seq LIMIT 1), m.seq))
	AND (m.`key` = '' OR {stop} = 0 OR m.seq < COALESCE((
		SELECT e.seq FROM {messages} AS e FORCE INDEX (dead_keys) WHERE e.dead_key = m.`key`
		ORDER BY e.seq LIMIT 1), m.seq + 1))
	AND (m.`key` = '' OR {all_free} = 1 OR NOT EXISTS (
		SELECT 1 FROM ({unknown}) AS u WHERE m.seq > (
			SELECT e.seq FROM {messages} AS e FORCE INDEX (topics)
			WHERE e.pending_topic = u.topic AND e.`key` = m.`key` ORDER BY e.seq LIMIT 1)))
