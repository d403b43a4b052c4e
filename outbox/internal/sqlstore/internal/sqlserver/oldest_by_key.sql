{begin}
{unknown}
{page}
SELECT l.n, l.[key], COALESCE((
	SELECT DATEDIFF_BIG(MICROSECOND, MIN(m.next_attempt_at), @now)
	FROM @page AS o JOIN {messages} AS m WITH (READCOMMITTEDLOCK, READPAST) ON m.seq = o.seq
	WHERE m.state = 'pending' AND m.tried = 0
		AND {free}), 0)
FROM (SELECT COUNT_BIG(*) AS n, COALESCE(MAX(o.[key]), 0x) AS [key] FROM @page AS o) AS l;
