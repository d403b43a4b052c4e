DECLARE @page TABLE (seq bigint NOT NULL PRIMARY KEY, [key] varbinary(200) NOT NULL);
INSERT INTO @page (seq, [key])
SELECT TOP ({page_size}) m.seq, m.[key] FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
WHERE m.state = 'pending' AND m.tried = 0 AND m.[key] > {after}
ORDER BY m.[key], m.seq;
