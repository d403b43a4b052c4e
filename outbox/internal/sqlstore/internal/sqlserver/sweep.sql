{begin}
DECLARE @dispatched datetime2(6) =
	DATEADD(second, -({dispatched} / 1000000), DATEADD(microsecond, -({dispatched} % 1000000), @now));
DECLARE @dead datetime2(6) = DATEADD(second, -({dead} / 1000000), DATEADD(microsecond, -({dead} % 1000000), @now));
DELETE TOP ({limit}) m FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
WHERE {dispatched} > 0 AND m.state = 'dispatched' AND m.finished_at < @dispatched
	OR {dead} > 0 AND m.state = 'dead' AND m.finished_at < @dead;
SELECT @@ROWCOUNT;
