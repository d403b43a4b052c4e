m.topic NOT IN (SELECT u.topic FROM @unknown AS u)
	AND (m.[key] = 0x OR NOT EXISTS (
		SELECT 1 FROM {messages} AS e WITH (READCOMMITTEDLOCK, READPAST)
		WHERE e.[key] = m.[key] AND e.state IN ('pending', 'dead') AND e.attempts > 0 AND e.seq < m.seq
			AND (e.state = 'dead' AND {stop} = 1
				OR e.state = 'pending' AND e.next_attempt_at > @now AND e.next_attempt_at > m.next_attempt_at)))
	AND (m.[key] = 0x OR NOT EXISTS (
		SELECT 1 FROM @unknown AS u JOIN {messages} AS e WITH (READCOMMITTEDLOCK, READPAST) ON e.topic = u.topic
		WHERE e.state = 'pending' AND e.[key] = m.[key] AND e.seq < m.seq))
