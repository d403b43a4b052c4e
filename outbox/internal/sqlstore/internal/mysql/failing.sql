{bounded} SELECT {hint} f.topic, f.n, TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', f.failing_since),
	TIMESTAMPDIFF(MICROSECOND, f.failing_since, UTC_TIMESTAMP(6)), CAST(f.last_error AS BINARY)
FROM (
	SELECT o.*, COUNT(*) OVER (PARTITION BY o.topic) AS n,
		ROW_NUMBER() OVER (PARTITION BY o.topic ORDER BY o.failing_since, o.seq) AS place
	FROM (
		SELECT m.seq, m.topic, m.failing_since, m.last_error FROM {messages} AS m FORCE INDEX (failing)
		WHERE m.failing_at IS NOT NULL ORDER BY m.failing_at LIMIT {most}) AS o
) AS f
WHERE f.place = 1
ORDER BY f.failing_since, f.topic LIMIT {most_topics}
