-- How far the walk in the order of the rows goes: what is behind it is looked for key by key.
DECLARE @edge bigint = (SELECT m.seq FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
	WHERE m.state = 'pending' ORDER BY m.seq OFFSET {window} ROWS FETCH NEXT 1 ROWS ONLY);
