{begin}
SELECT TOP ({most_topics}) f.topic, f.n, DATEDIFF_BIG(MICROSECOND, '1970-01-01', f.failing_since),
	DATEDIFF_BIG(MICROSECOND, f.failing_since, @now), f.last_error
FROM (
	SELECT o.*, COUNT_BIG(*) OVER (PARTITION BY o.topic) AS n,
		ROW_NUMBER() OVER (PARTITION BY o.topic ORDER BY o.failing_since, o.seq) AS place
	FROM (
		SELECT TOP ({most}) m.seq, m.topic, m.failing_since, m.last_error
		FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
		WHERE m.state = 'pending' AND m.failing_since IS NOT NULL ORDER BY m.failing_since) AS o
) AS f
WHERE f.place = 1
ORDER BY f.failing_since, f.topic;
