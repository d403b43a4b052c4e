m.state = 'pending' AND m.tried > 0
	AND (m.key = '' OR NOT EXISTS (
		SELECT 1 FROM {messages} AS e
		WHERE e.key = m.key AND e.state = 'pending' AND e.tried = 0 AND e.seq < m.seq))
