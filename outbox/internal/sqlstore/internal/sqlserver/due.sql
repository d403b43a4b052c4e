-- Rows that an open transaction has locked are passed over, and found later.
{begin}
{unknown}
{edge}
DECLARE @due TABLE (seq bigint NOT NULL PRIMARY KEY);
INSERT INTO @due (seq)
SELECT TOP ({limit}) m.seq FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
WHERE m.state = 'pending' AND {inside} AND m.tried = 0
	AND {mine}
ORDER BY m.seq;
INSERT INTO @due (seq)
SELECT TOP ({limit}) m.seq FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
WHERE {again} AND m.next_attempt_at <= @now
	AND {mine}
	AND NOT EXISTS (SELECT 1 FROM @due AS x WHERE x.seq = m.seq) -- another relay may have marked it meanwhile
ORDER BY m.next_attempt_at;
DECLARE @next bigint = (
	SELECT TOP (1) DATEDIFF_BIG(MICROSECOND, @now, m.next_attempt_at)
	FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
	WHERE {again} AND m.next_attempt_at > @now
		AND {mine}
	ORDER BY m.next_attempt_at);
SELECT l.shards, l.epoch, @next, @edge, {delivery}
FROM {layout} AS l LEFT JOIN ({messages} AS d JOIN (
	SELECT b.seq FROM (SELECT w.seq, SUM(DATALENGTH(p.payload)) OVER (ORDER BY w.seq ROWS UNBOUNDED PRECEDING)
			- DATALENGTH(p.payload) AS ahead
		FROM (SELECT TOP ({limit}) x.seq FROM @due AS x ORDER BY x.seq) AS w JOIN {messages} AS p ON p.seq = w.seq) AS b
	WHERE b.ahead < {bytes}) AS o
	ON o.seq = d.seq) ON 1 = 1
WHERE l.id = 1
ORDER BY d.seq;
