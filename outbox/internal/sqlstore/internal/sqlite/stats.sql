WITH RECURSIVE {unknown},
{edge}
SELECT
	(SELECT count(*) FROM (SELECT 1 FROM {messages} AS m WHERE m.state = 'pending' LIMIT {most})),
	(SELECT count(*) FROM (SELECT 1 FROM {messages} AS m WHERE m.state = 'dead' AND m.finished_at IS NOT NULL
		LIMIT {most})),
	(SELECT {now} - min(o.next_attempt_at) FROM (
		SELECT * FROM (SELECT m.next_attempt_at FROM {messages} AS m
			WHERE m.state = 'pending' AND {inside} AND m.tried = 0
				AND {free}
			ORDER BY m.seq LIMIT {first})
		UNION ALL
		SELECT * FROM (SELECT m.next_attempt_at FROM {messages} AS m
			WHERE {again} AND m.next_attempt_at <= {now}
				AND {free}
			ORDER BY m.next_attempt_at LIMIT {first})) AS o),
	(SELECT {now} - min(o.since) FROM (
		SELECT * FROM (SELECT coalesce(m.requeued_at, m.created_at) AS since FROM {messages} AS m
			WHERE m.state = 'pending' ORDER BY m.seq LIMIT {window})
		UNION ALL
		SELECT * FROM (SELECT m.created_at FROM {messages} AS m
			WHERE m.state = 'pending' AND m.seq > (SELECT max(q.seq) FROM {messages} AS q
				WHERE q.state = 'pending' AND q.requeued_at IS NOT NULL)
			ORDER BY m.seq LIMIT 1)) AS o),
	(SELECT e.seq FROM edge AS e), u.topic,
	(SELECT count(*) FROM (SELECT 1 FROM {messages} AS m WHERE m.state = 'pending' AND m.topic = u.topic
		LIMIT {most}))
FROM (SELECT 1) LEFT JOIN (SELECT u.topic FROM unknown AS u ORDER BY u.topic LIMIT {max_unknown}) AS u ON true
