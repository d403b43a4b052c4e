m.topic NOT IN (SELECT u.topic FROM @unknown AS u)
	AND (m.[key] = 0x OR NOT EXISTS (
		SELECT 1 FROM {messages} AS e WITH (READCOMMITTEDLOCK, READPAST)
		WHERE e.[key] = m.[key] AND e.state = 'pending' AND e.tried > 0 AND e.seq < m.seq))
	AND (m.[key] = 0x OR {stop} = 0 OR NOT EXISTS (
		SELECT 1 FROM {messages} AS e WITH (READCOMMITTEDLOCK, READPAST)
		WHERE e.[key] = m.[key] AND e.state = 'dead' AND e.seq < m.seq))
	AND (m.[key] = 0x OR NOT EXISTS (
		SELECT 1 FROM @unknown AS u JOIN {messages} AS e WITH (READCOMMITTEDLOCK, READPAST) ON e.topic = u.topic
		WHERE e.state = 'pending' AND e.[key] = m.[key] AND e.seq < m.seq))
