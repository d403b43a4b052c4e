SELECT r.topic, r.n, r.failing_since, {now} - r.failing_since, r.last_error
FROM (
	SELECT o.*, count(*) OVER (PARTITION BY o.topic) AS n,
		row_number() OVER (PARTITION BY o.topic ORDER BY o.failing_since, o.seq) AS place
	FROM (
		SELECT m.seq, m.topic, m.failing_since, m.last_error FROM {messages} AS m
		WHERE m.state = 'pending' AND m.failing_since IS NOT NULL ORDER BY m.failing_since LIMIT {most}) AS o
) AS r
WHERE r.place = 1
ORDER BY r.failing_since, r.topic LIMIT {most_topics}
