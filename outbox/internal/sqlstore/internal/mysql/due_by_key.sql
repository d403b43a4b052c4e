{bounded} SELECT {hint} l.n, l.`key`, {delivery}
FROM (SELECT COUNT(*) AS n, COALESCE(MAX(o.fresh_key), '') AS `key` FROM (
		{page}
	) AS o) AS l
	LEFT JOIN (SELECT b.seq FROM (
		SELECT w.seq, SUM(LENGTH(p.payload)) OVER (ORDER BY w.`key`, w.seq) - LENGTH(p.payload) AS ahead FROM (
		SELECT m.seq, m.`key` FROM (
		{page}
		) AS o STRAIGHT_JOIN {messages} AS m ON m.seq = o.seq
		WHERE {mine}
		ORDER BY m.`key`, m.seq LIMIT {limit}
		) AS w STRAIGHT_JOIN {messages} AS p ON p.seq = w.seq) AS b WHERE b.ahead < {bytes}
	) AS f ON 1 = 1
	LEFT JOIN {messages} AS d ON d.seq = f.seq
ORDER BY d.`key`, d.seq
LIMIT 18446744073709551615
