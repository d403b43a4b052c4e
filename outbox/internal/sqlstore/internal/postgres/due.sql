WITH RECURSIVE {unknown},
{edge},
fresh AS MATERIALIZED (
	SELECT m.* FROM {messages} AS m
	WHERE m.state = 'pending' AND {inside} AND m.tried = 0
		AND {mine}
	ORDER BY m.seq LIMIT {limit}
),
retried AS MATERIALIZED (
	SELECT m.* FROM {messages} AS m
	WHERE {again} AND m.next_attempt_at <= (SELECT at FROM now)
		AND {mine}
	ORDER BY m.next_attempt_at LIMIT {limit}
),
found AS (SELECT * FROM fresh UNION ALL SELECT * FROM retried ORDER BY seq LIMIT {limit}),
due AS (
	SELECT b.* FROM (SELECT f.*, sum(octet_length(f.payload)) OVER (ORDER BY f.seq) - octet_length(f.payload) AS ahead
		FROM found AS f) AS b
	WHERE b.ahead < {bytes}
)
SELECT l.shards, l.epoch,
	(SELECT (extract(epoch FROM m.next_attempt_at - (SELECT at FROM now)) * 1000000)::bigint FROM {messages} AS m
		WHERE {again} AND m.next_attempt_at > (SELECT at FROM now)
			AND {mine}
		ORDER BY m.next_attempt_at LIMIT 1),
	(SELECT e.seq FROM edge AS e), {delivery}
FROM {layout} AS l LEFT JOIN due AS d ON true
WHERE l.id = 1
ORDER BY d.seq
