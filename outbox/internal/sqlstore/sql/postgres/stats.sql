WITH RECURSIVE {unknown}
SELECT
	(SELECT count(*) FROM (SELECT FROM {messages} AS m WHERE m.state = 'pending' LIMIT {most}) AS p),
	(SELECT count(*) FROM (SELECT FROM {messages} AS m WHERE m.state = 'dead' AND m.finished_at IS NOT NULL
		ORDER BY m.finished_at LIMIT {most}) AS d),
	(SELECT (extract(epoch FROM max((SELECT at FROM now) - o.next_attempt_at)) * 1000000)::bigint FROM (
		SELECT m.next_attempt_at FROM {messages} AS m
		WHERE m.state = 'pending' AND m.next_attempt_at <= (SELECT at FROM now)
			AND {free}
		ORDER BY m.seq LIMIT {first}) AS o),
	(SELECT (extract(epoch FROM (SELECT at FROM now) - m.created_at) * 1000000)::bigint FROM {messages} AS m
		WHERE m.state = 'pending' ORDER BY m.seq LIMIT 1),
	u.topic,
	(SELECT count(*) FROM (SELECT FROM {messages} AS m WHERE m.state = 'pending' AND m.topic = u.topic
		LIMIT {most}) AS w)
FROM now LEFT JOIN (SELECT u.topic FROM unknown AS u ORDER BY u.topic LIMIT {max_unknown}) AS u ON true
