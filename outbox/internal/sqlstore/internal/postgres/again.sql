m.state = 'pending' AND m.tried > 0
	AND (m.key = '' OR NOT EXISTS (
		SELECT FROM {messages} AS e
		WHERE e.key = m.key AND (e.key, e.seq) < (m.key, m.seq) AND e.state = 'pending' AND e.tried = 0))
