-- A row that is locked is passed over: its message is delivered all the same.
WITH begun AS MATERIALIZED (
	SELECT * FROM pg_catalog.json_to_recordset({begun}::json)
		AS x(id uuid, seq bigint, attempts integer, crashes integer)
),
mine AS MATERIALIZED (
	SELECT m.seq, x.crashes FROM {messages} AS m JOIN begun AS x ON x.seq = m.seq AND x.id = m.message_id
	WHERE m.seq = ANY (ARRAY(SELECT y.seq FROM begun AS y)) AND m.attempts = x.attempts AND m.state = 'pending'
	ORDER BY m.seq FOR NO KEY UPDATE OF m SKIP LOCKED
)
UPDATE {messages} AS m SET crashes = mine.crashes FROM mine
WHERE m.seq = ANY (ARRAY(SELECT y.seq FROM mine AS y)) AND m.seq = mine.seq
