WITH RECURSIVE {unknown},
{edge},
fresh AS MATERIALIZED (
	SELECT m.seq FROM {messages} AS m
	WHERE m.state = 'pending' AND {inside} AND m.tried = 0
		AND {mine}
	ORDER BY m.seq LIMIT {limit}
),
retried AS MATERIALIZED (
	SELECT m.seq FROM {messages} AS m
	WHERE {again} AND m.next_attempt_at <= {now}
		AND {mine}
	ORDER BY m.next_attempt_at LIMIT {limit}
),
found AS MATERIALIZED (SELECT seq FROM fresh UNION ALL SELECT seq FROM retried ORDER BY seq LIMIT {limit}),
due AS MATERIALIZED (
	SELECT r.seq FROM (SELECT o.seq, sum(length(m.payload)) OVER (ORDER BY o.seq) - length(m.payload) AS ahead
		FROM found AS o CROSS JOIN {messages} AS m ON m.seq = o.seq) AS r
	WHERE r.ahead < {bytes}
)
SELECT l.shards, l.epoch,
	(SELECT m.next_attempt_at - {now} FROM {messages} AS m
		WHERE {again} AND m.next_attempt_at > {now}
			AND {mine}
		ORDER BY m.next_attempt_at LIMIT 1),
	(SELECT e.seq FROM edge AS e), {delivery}
FROM {layout} AS l LEFT JOIN due AS o ON true LEFT JOIN {messages} AS d ON d.seq = o.seq
WHERE l.id = 1
ORDER BY o.seq
