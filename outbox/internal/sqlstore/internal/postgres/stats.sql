WITH RECURSIVE {unknown},
{edge},
first AS MATERIALIZED (
	SELECT p.topic, count(*) AS n
	FROM (SELECT m.topic FROM {messages} AS m WHERE m.state = 'pending' ORDER BY m.seq LIMIT {most}) AS p
	GROUP BY p.topic
)
SELECT
	(SELECT count(*) FROM (SELECT FROM {messages} AS m WHERE m.state = 'pending' LIMIT {most}) AS p),
	(SELECT count(*) FROM (SELECT FROM {messages} AS m WHERE m.state = 'dead' AND m.finished_at IS NOT NULL
		ORDER BY m.finished_at LIMIT {most}) AS d),
	(SELECT (extract(epoch FROM max((SELECT at FROM now) - o.next_attempt_at)) * 1000000)::bigint FROM (
		(SELECT m.next_attempt_at FROM {messages} AS m
			WHERE m.state = 'pending' AND {inside} AND m.tried = 0
				AND {free}
			ORDER BY m.seq LIMIT {first})
		UNION ALL
		(SELECT m.next_attempt_at FROM {messages} AS m
			WHERE {again} AND m.next_attempt_at <= (SELECT at FROM now)
				AND {free}
			ORDER BY m.next_attempt_at LIMIT {first})) AS o),
	(SELECT (extract(epoch FROM (SELECT at FROM now) - min(o.since)) * 1000000)::bigint FROM (
		(SELECT coalesce(m.requeued_at, m.created_at) AS since FROM {messages} AS m
			WHERE m.state = 'pending' ORDER BY m.seq LIMIT {window})
		UNION ALL
		(SELECT m.created_at FROM {messages} AS m
			WHERE m.state = 'pending' AND m.seq > (SELECT max(q.seq) FROM {messages} AS q
				WHERE q.state = 'pending' AND q.requeued_at IS NOT NULL)
			ORDER BY m.seq LIMIT 1)) AS o),
	(SELECT e.seq FROM edge AS e), u.topic,
	coalesce((SELECT f.n FROM first AS f WHERE f.topic = u.topic), 1)
FROM now LEFT JOIN (SELECT u.topic FROM unknown AS u ORDER BY u.topic LIMIT {max_unknown}) AS u ON true
