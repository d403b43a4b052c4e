-- What was appended after all that is requeued, and has nothing of that before it in its key.
{begin}
{unknown}
DECLARE @last bigint = (SELECT MAX(m.seq) FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
	WHERE m.state = 'pending' AND m.requeued_at IS NOT NULL);
SELECT {delivery}
FROM (SELECT w.*, SUM(DATALENGTH(w.payload)) OVER (ORDER BY w.seq ROWS UNBOUNDED PRECEDING)
	- DATALENGTH(w.payload) AS ahead FROM (
	SELECT TOP ({limit}) m.* FROM (
		SELECT TOP ({window}) x.* FROM {messages} AS x WITH (READCOMMITTEDLOCK, READPAST)
		WHERE x.state = 'pending' AND x.seq > @last ORDER BY x.seq) AS m
	WHERE m.tried = 0
		AND (m.[key] = 0x OR NOT EXISTS (
			SELECT 1 FROM {messages} AS e WITH (READCOMMITTEDLOCK, READPAST)
			WHERE e.[key] = m.[key] AND e.state = 'pending' AND e.tried = 0 AND e.seq <= @last))
		AND {mine}
	ORDER BY m.seq
) AS w) AS d
WHERE d.ahead < {bytes}
ORDER BY d.seq;
