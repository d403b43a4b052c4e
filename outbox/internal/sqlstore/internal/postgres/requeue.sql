WITH now AS MATERIALIZED (SELECT pg_catalog.clock_timestamp() AS at),
found AS MATERIALIZED (
	SELECT m.seq, {older} = 0 OR m.created_at >= now.at - {older} * interval '1 microsecond' AS young
	FROM {messages} AS m, now
	WHERE m.state = 'dead'{where}
	ORDER BY m.seq FOR NO KEY UPDATE OF m
),
requeued AS (
	UPDATE {messages} AS m SET state = 'pending', tried = 0, crashes = 0, next_attempt_at = now.at,
		requeued_at = now.at, failing_since = NULL,
		finished_at = NULL, note = {note}
	FROM found, now
	WHERE m.seq = found.seq AND found.young
	RETURNING 1
)
SELECT (SELECT count(*) FROM requeued), (SELECT count(*) FROM found WHERE NOT young)
