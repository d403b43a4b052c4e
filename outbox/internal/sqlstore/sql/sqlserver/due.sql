-- Rows that an open transaction has locked are passed over, and found later.
{begin}
{unknown}
DECLARE @due TABLE (seq bigint NOT NULL PRIMARY KEY);
INSERT INTO @due (seq)
SELECT TOP ({limit}) m.seq FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
WHERE m.state = 'pending' AND m.next_attempt_at <= @now
	AND {mine}
ORDER BY m.seq;
DECLARE @next bigint = (
	SELECT TOP (1) DATEDIFF_BIG(MICROSECOND, @now, m.next_attempt_at)
	FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
	WHERE m.state = 'pending' AND m.attempts > 0 AND m.next_attempt_at > @now
		AND {mine}
	ORDER BY m.next_attempt_at);
SELECT l.shards, l.epoch, @next, d.seq, d.message_id, d.topic, d.[key], d.key_hash, d.payload, d.headers, d.attempts,
	d.budget_from, DATEDIFF_BIG(MICROSECOND, d.created_at, @now)
FROM {layout} AS l LEFT JOIN ({messages} AS d JOIN @due AS o ON o.seq = d.seq) ON 1 = 1
WHERE l.id = 1
ORDER BY d.seq;
