{begin}
{unknown}
SELECT TOP ({limit}) {delivery}
FROM (
	SELECT m.* FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
	WHERE m.state = 'pending' AND m.tried = 0 AND m.[key] = 0x
		AND {mine}
) AS d
ORDER BY d.seq;
