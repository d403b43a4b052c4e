({all} = 1 OR m.topic IN ({topics_with_sinks}))
	AND (m.`key` = '' OR NOT EXISTS (
		SELECT 1 FROM {messages} AS e FORCE INDEX (waiting)
		WHERE e.held_key = m.`key` AND e.state = 'pending' AND e.seq < m.seq
			AND e.next_attempt_at > GREATEST(m.next_attempt_at, UTC_TIMESTAMP(6))))
	AND (m.`key` = '' OR {stop} = 0 OR NOT EXISTS (
		SELECT 1 FROM {messages} AS e FORCE INDEX (waiting)
		WHERE e.held_key = m.`key` AND e.state = 'dead' AND e.seq < m.seq))
	AND (m.`key` = '' OR {all} = 1 OR NOT EXISTS (
		SELECT 1 FROM ({unknown}) AS u STRAIGHT_JOIN {messages} AS e FORCE INDEX (topics)
			ON e.pending_topic = u.topic
		WHERE e.`key` = m.`key` AND e.seq < m.seq))
