{bounded} SELECT {hint} {delivery}
FROM (SELECT b.seq FROM (
	SELECT w.seq, SUM(LENGTH(p.payload)) OVER (ORDER BY w.seq) - LENGTH(p.payload) AS ahead FROM (
	SELECT m.seq FROM {messages} AS m FORCE INDEX (fresh)
	WHERE m.fresh_key = ''
		AND {mine}
	ORDER BY m.seq LIMIT {limit}
	) AS w STRAIGHT_JOIN {messages} AS p ON p.seq = w.seq) AS b WHERE b.ahead < {bytes}
) AS o STRAIGHT_JOIN {messages} AS d ON d.seq = o.seq
ORDER BY d.seq
LIMIT 18446744073709551615
