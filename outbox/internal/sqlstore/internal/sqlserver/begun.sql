{begin}
-- A row that is locked is passed over: its message is delivered all the same.
UPDATE m SET crashes = x.crashes
FROM {messages} AS m WITH (UPDLOCK, ROWLOCK, READCOMMITTEDLOCK, READPAST)
	JOIN OPENJSON({begun}) WITH (id char(32), seq bigint, attempts int, crashes int) AS x
		ON x.seq = m.seq AND CONVERT(binary(16), x.id, 2) = m.message_id AND x.attempts = m.attempts
WHERE m.state = 'pending';
