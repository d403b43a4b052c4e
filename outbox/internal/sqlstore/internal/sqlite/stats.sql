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
	(SELECT {now} - m.created_at FROM {messages} AS m WHERE m.state = 'pending' ORDER BY m.seq LIMIT 1),
	(SELECT e.seq FROM edge AS e), u.topic,
	(SELECT count(*) FROM (SELECT 1 FROM {messages} AS m WHERE m.state = 'pending' AND m.topic = u.topic
		LIMIT {most}))
FROM (SELECT 1) LEFT JOIN (SELECT u.topic FROM unknown AS u ORDER BY u.topic LIMIT {max_unknown}) AS u ON true
