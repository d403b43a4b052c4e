m.topic NOT IN (SELECT u.topic FROM unknown AS u)
	AND (m.key = '' OR NOT EXISTS (
		SELECT FROM {messages} AS e
		WHERE e.key = m.key AND e.key <> '' AND e.attempts > 0 AND e.state <> 'dispatched' AND e.seq < m.seq
			AND CASE e.state -- no index of what is pending is to be thought of
				WHEN 'dead' THEN {stop} = 1
				ELSE e.next_attempt_at > greatest(m.next_attempt_at, (SELECT at FROM now)) END))
	AND (m.key = '' OR NOT EXISTS (
		SELECT FROM unknown AS u
		WHERE m.seq > (SELECT e.seq FROM {messages} AS e
			WHERE e.state = 'pending' AND e.topic = u.topic AND e.key = m.key ORDER BY e.seq LIMIT 1)))
