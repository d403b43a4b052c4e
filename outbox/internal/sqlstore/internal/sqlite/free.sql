m.topic NOT IN (SELECT u.topic FROM unknown AS u)
	AND (m.key = '' OR NOT EXISTS (
		SELECT 1 FROM {messages} AS e
		WHERE e.key = m.key AND e.state = 'pending' AND e.tried > 0 AND e.key <> '' AND e.seq < m.seq))
	AND (m.key = '' OR {stop} = 0 OR NOT EXISTS (
		SELECT 1 FROM {messages} AS e
		WHERE e.key = m.key AND e.state = 'dead' AND e.key <> '' AND e.seq < m.seq))
	AND (m.key = '' OR NOT EXISTS (
		SELECT 1 FROM unknown AS u CROSS JOIN {messages} AS e ON e.topic = u.topic
		WHERE e.state = 'pending' AND e.key = m.key AND e.seq < m.seq))
