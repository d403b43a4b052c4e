{begin}
DELETE TOP ({limit}) i FROM {inbox} AS i WITH (READCOMMITTEDLOCK, READPAST)
WHERE {inbox_kept} > 0 AND i.received_at
	< DATEADD(second, -({inbox_kept} / 1000000), DATEADD(microsecond, -({inbox_kept} % 1000000), @now));
SELECT @@ROWCOUNT;
