(m.`key` = '' OR m.seq < COALESCE((
		SELECT e.seq FROM {messages} AS e FORCE INDEX (fresh) WHERE e.fresh_key = m.`key`
		ORDER BY e.seq LIMIT 1), m.seq + 1))
