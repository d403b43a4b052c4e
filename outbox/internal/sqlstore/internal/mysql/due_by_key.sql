{bounded} SELECT {hint} l.n, l.`key`, {delivery}
FROM (SELECT COUNT(*) AS n, COALESCE(MAX(o.fresh_key), '') AS `key` FROM (
		{page}
	) AS o) AS l
	LEFT JOIN (
		SELECT m.seq FROM (
		{page}
		) AS o STRAIGHT_JOIN {messages} AS m ON m.seq = o.seq
		WHERE {mine}
	) AS f ON 1 = 1
	LEFT JOIN {messages} AS d ON d.seq = f.seq
ORDER BY d.`key`, d.seq
LIMIT 18446744073709551615
