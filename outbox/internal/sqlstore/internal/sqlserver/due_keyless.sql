{begin}
{unknown}
SELECT {delivery}
FROM (SELECT w.*, SUM(DATALENGTH(w.payload)) OVER (ORDER BY w.seq ROWS UNBOUNDED PRECEDING)
	- DATALENGTH(w.payload) AS ahead FROM (
	SELECT TOP ({limit}) m.* FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
	WHERE m.state = 'pending' AND m.tried = 0 AND m.[key] = 0x
		AND {mine}
	ORDER BY m.seq
) AS w) AS d
WHERE d.ahead < {bytes}
ORDER BY d.seq;
