m.topic NOT IN (SELECT u.topic FROM unknown AS u)
	AND (m.key = '' OR NOT EXISTS (
		SELECT FROM {messages} AS e
		WHERE e.key = m.key AND (e.key, e.seq) < (m.key, m.seq) -- no index of seq alone is to be thought of
			AND e.state = 'pending' AND e.tried > 0 AND e.key <> ''))
	AND (m.key = '' OR {stop} = 0 OR NOT EXISTS (
		SELECT FROM {messages} AS e
		WHERE e.key = m.key AND (e.key, e.seq) < (m.key, m.seq) AND e.state = 'dead' AND e.key <> ''))
	AND (m.key = '' OR NOT EXISTS (
		SELECT FROM unknown AS u
		WHERE m.seq > (SELECT e.seq FROM {messages} AS e
			WHERE e.state = 'pending' AND e.topic = u.topic AND e.key = m.key ORDER BY e.seq LIMIT 1)))
