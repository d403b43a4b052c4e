SELECT f.topic, f.n, (extract(epoch FROM f.failing_since) * 1000000)::bigint,
	(extract(epoch FROM pg_catalog.clock_timestamp() - f.failing_since) * 1000000)::bigint, f.last_error
FROM (
	SELECT o.*, count(*) OVER (PARTITION BY o.topic) AS n,
		row_number() OVER (PARTITION BY o.topic ORDER BY o.failing_since, o.seq) AS place
	FROM (
		SELECT m.seq, m.topic, m.failing_since, m.last_error FROM {messages} AS m
		WHERE m.state = 'pending' AND m.failing_since IS NOT NULL ORDER BY m.failing_since LIMIT {most}) AS o
) AS f
WHERE f.place = 1
ORDER BY f.failing_since, f.topic LIMIT {most_topics}
