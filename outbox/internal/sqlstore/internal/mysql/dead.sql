{bounded} SELECT {hint} COUNT(*), COALESCE(MAX(p.seq), 0) FROM (
	SELECT m.seq FROM {messages} AS m WHERE m.state = 'dead'{where} ORDER BY m.seq LIMIT {limit}) AS p
