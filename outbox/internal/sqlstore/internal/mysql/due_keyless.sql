{bounded} SELECT {hint} {delivery}
FROM (
	SELECT m.seq FROM {messages} AS m FORCE INDEX (fresh)
	WHERE m.fresh_key = ''
		AND {mine}
	ORDER BY m.seq LIMIT {limit}
) AS o STRAIGHT_JOIN {messages} AS d ON d.seq = o.seq
ORDER BY d.seq
LIMIT 18446744073709551615
