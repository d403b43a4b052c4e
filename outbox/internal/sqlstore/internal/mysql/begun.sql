-- A row that is locked is passed over: its message is delivered all the same. With a LIMIT the
-- server makes a table of the rows, and locks no other. MySQL refuses FOR UPDATE beside a
-- JSON_TABLE that is not in a subquery.
{bounded} UPDATE {hint} (
	SELECT m.seq, x.crashes FROM (SELECT * FROM JSON_TABLE(CONVERT({begun} USING utf8mb4), '$[*]' COLUMNS (
		id CHAR(32) CHARACTER SET ascii PATH '$.id', seq BIGINT PATH '$.seq', attempts INT PATH '$.attempts',
		crashes INT PATH '$.crashes')) AS r) AS x STRAIGHT_JOIN {messages} AS m FORCE INDEX (PRIMARY) ON m.seq = x.seq
	WHERE m.message_id = UNHEX(x.id) AND m.attempts = x.attempts AND m.state = 'pending'
	LIMIT 18446744073709551615 FOR UPDATE SKIP LOCKED
) AS o STRAIGHT_JOIN {messages} AS m FORCE INDEX (PRIMARY) ON m.seq = o.seq
SET m.crashes = o.crashes
