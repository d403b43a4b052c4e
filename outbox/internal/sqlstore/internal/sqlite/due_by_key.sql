WITH RECURSIVE {unknown},
{page},
run(seq, key, n) AS (
	SELECT m.seq, m.key, 1 FROM page AS o CROSS JOIN {messages} AS m ON m.seq = o.seq WHERE {mine}
	UNION ALL
	SELECT (SELECT min(m.seq) FROM {messages} AS m
		WHERE m.state = 'pending' AND m.tried = 0 AND m.key = r.key AND m.seq > r.seq), r.key, r.n + 1
	FROM run AS r WHERE r.seq IS NOT NULL AND r.n < {most_of_key}
),
found AS MATERIALIZED (
	SELECT m.seq, m.key FROM run AS r CROSS JOIN {messages} AS m ON m.seq = r.seq WHERE {mine}
	ORDER BY m.key, m.seq LIMIT {limit}
),
due AS MATERIALIZED (
	SELECT r.seq, r.key FROM (
		SELECT o.seq, o.key, sum(length(m.payload)) OVER (ORDER BY o.key, o.seq) - length(m.payload) AS ahead
		FROM found AS o CROSS JOIN {messages} AS m ON m.seq = o.seq) AS r
	WHERE r.ahead < {bytes}
)
SELECT l.n, l.key, {delivery}
FROM (SELECT count(*) AS n, coalesce(max(o.key), '') AS key FROM page AS o) AS l
	LEFT JOIN due AS o ON true LEFT JOIN {messages} AS d ON d.seq = o.seq
ORDER BY o.key, o.seq
