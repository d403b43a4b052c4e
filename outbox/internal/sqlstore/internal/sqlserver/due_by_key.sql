{begin}
{unknown}
{page}
SELECT l.n, l.[key], {delivery}
FROM (SELECT COUNT_BIG(*) AS n, COALESCE(MAX(o.[key]), 0x) AS [key] FROM @page AS o) AS l
	LEFT JOIN (SELECT b.* FROM (SELECT w.*, SUM(DATALENGTH(w.payload)) OVER (ORDER BY w.[key], w.seq
			ROWS UNBOUNDED PRECEDING) - DATALENGTH(w.payload) AS ahead FROM (
		SELECT TOP ({limit}) m.* FROM @page AS o JOIN {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
			ON m.seq = o.seq
		WHERE m.state = 'pending' AND m.tried = 0
			AND {mine}
		ORDER BY m.[key], m.seq
		) AS w) AS b WHERE b.ahead < {bytes}
	) AS d ON 1 = 1
ORDER BY d.[key], d.seq;
