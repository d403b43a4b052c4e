DECLARE @unknown TABLE (topic varbinary(200) NOT NULL PRIMARY KEY);
INSERT INTO @unknown (topic)
SELECT DISTINCT m.topic FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
WHERE m.state = 'pending'
	AND (m.topic IN (SELECT CONVERT(varbinary(200), k.value, 2) FROM OPENJSON({full_topics}) AS k)
		OR {all} = 0
		AND m.topic NOT IN (SELECT CONVERT(varbinary(200), k.value, 2) FROM OPENJSON({topics_with_sinks}) AS k));
