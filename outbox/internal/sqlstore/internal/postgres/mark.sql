-- What another relay has written since this statement began is looked at once more, and stays. With
-- an array the rows are found by their keys, whatever the statistics are.
WITH results AS MATERIALIZED (
	SELECT * FROM pg_catalog.json_to_recordset({results}::json)
		AS x(seq bigint, attempts integer, outcome text, retry_in bigint, took bigint, node text, error text)
),
mine AS MATERIALIZED (
	SELECT m.seq, m.attempts FROM {messages} AS m JOIN results AS x ON x.seq = m.seq
	WHERE m.seq = ANY (ARRAY(SELECT y.seq FROM results AS y)) AND m.attempts = x.attempts AND m.state = 'pending'
	ORDER BY m.seq FOR NO KEY UPDATE OF m
),
written AS (
	UPDATE {messages} AS m SET
		attempts = x.attempts + 1,
		tried = m.tried + 1,
		state = CASE x.outcome WHEN 'ok' THEN 'dispatched' WHEN 'transient' THEN 'pending' ELSE 'dead' END,
		next_attempt_at = CASE x.outcome WHEN 'transient' THEN
			pg_catalog.clock_timestamp() + x.retry_in * interval '1 microsecond' ELSE m.next_attempt_at END,
		finished_at = CASE x.outcome WHEN 'transient' THEN NULL ELSE pg_catalog.clock_timestamp() END,
		last_error = CASE x.outcome WHEN 'ok' THEN m.last_error ELSE x.error END
	FROM mine JOIN results AS x ON x.seq = mine.seq AND x.attempts = mine.attempts
	WHERE m.seq = ANY (ARRAY(SELECT y.seq FROM mine AS y)) AND m.seq = mine.seq
	RETURNING m.seq, m.attempts, x.outcome, x.took, x.node, x.error
),
history AS (
	INSERT INTO {attempts} (message, attempt, at, took, node, outcome, error)
	SELECT w.seq, w.attempts, pg_catalog.clock_timestamp(), w.took, w.node, w.outcome, w.error FROM written AS w
)
SELECT w.seq FROM written AS w
UNION
SELECT x.seq FROM results AS x JOIN {attempts} AS a ON a.message = x.seq AND a.attempt = x.attempts + 1
WHERE a.message = ANY (ARRAY(SELECT y.seq FROM results AS y)) AND a.outcome = x.outcome COLLATE "C"
	AND a.node = x.node COLLATE "C"
