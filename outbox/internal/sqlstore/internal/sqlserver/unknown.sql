DECLARE @unknown TABLE (topic varbinary(200) NOT NULL PRIMARY KEY);
INSERT INTO @unknown (topic)
SELECT DISTINCT m.topic FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
WHERE {all} = 0 AND m.state = 'pending'
	AND m.topic NOT IN (SELECT CONVERT(varbinary(200), k.value, 2) FROM OPENJSON({topics_with_sinks}) AS k);
