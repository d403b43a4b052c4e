WITH RECURSIVE {unknown},
{page},
found AS MATERIALIZED (SELECT m.key FROM page AS o JOIN {messages} AS m ON m.seq = o.seq WHERE {mine}),
due AS MATERIALIZED (
	SELECT o.* FROM found AS f CROSS JOIN LATERAL (
		SELECT m.* FROM {messages} AS m
		WHERE m.state = 'pending' AND m.tried = 0 AND m.key = f.key
			AND {mine}
		ORDER BY m.seq LIMIT {most_of_key}) AS o
)
SELECT l.n, l.key, {delivery}
FROM (SELECT count(*) AS n, coalesce(max(o.key), '') AS key FROM page AS o) AS l LEFT JOIN (
	SELECT b.* FROM (
		SELECT f.*, sum(octet_length(f.payload)) OVER (ORDER BY f.key, f.seq) - octet_length(f.payload) AS ahead
		FROM (SELECT * FROM due ORDER BY key, seq LIMIT {limit}) AS f) AS b
	WHERE b.ahead < {bytes}) AS d ON true
ORDER BY d.key, d.seq
