m.topic NOT IN (SELECT u.topic FROM unknown AS u)
	AND (m.key = '' OR NOT EXISTS (
		SELECT FROM {messages} AS e
		WHERE e.key = m.key AND e.key <> '' AND e.attempts > 0 AND e.state <> 'dispatched' AND e.seq < m.seq
			-- No index on pending messages only may seem to help: it begins with the topic.
			AND (e.state = 'dead' AND {stop} = 1
				OR e.state <> 'dead' AND e.next_attempt_at > greatest(m.next_attempt_at, (SELECT at FROM now)))))
	AND (m.key = '' OR NOT EXISTS (
		SELECT FROM unknown AS u
		WHERE m.seq > (SELECT e.seq FROM {messages} AS e
			WHERE e.state = 'pending' AND e.topic = u.topic AND e.key = m.key ORDER BY e.seq LIMIT 1)))
