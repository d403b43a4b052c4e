-- What another relay has written since this statement began is looked at once more, and stays. A
-- row that is locked is passed over, and answered as such. With an array the rows are found by
-- their keys, whatever the statistics are.
WITH results AS MATERIALIZED (
	SELECT *, pg_catalog.clock_timestamp() - x.took * interval '1 microsecond' AS began
	FROM pg_catalog.json_to_recordset({results}::json) AS x(id uuid, seq bigint, attempts integer, outcome text,
		retry_in bigint, took bigint, node text, error text, most_late bigint)
),
mine AS MATERIALIZED (
	SELECT m.seq, m.attempts FROM {messages} AS m JOIN results AS x ON x.seq = m.seq AND x.id = m.message_id
	WHERE m.seq = ANY (ARRAY(SELECT y.seq FROM results AS y)) AND m.attempts = x.attempts AND m.state = 'pending'
	ORDER BY m.seq FOR NO KEY UPDATE OF m SKIP LOCKED
),
written AS (
	UPDATE {messages} AS m SET
		attempts = x.attempts + 1,
		tried = m.tried + 1,
		crashes = 0,
		state = CASE x.outcome WHEN 'ok' THEN 'dispatched' WHEN 'transient' THEN 'pending' ELSE 'dead' END,
		next_attempt_at = CASE x.outcome WHEN 'transient' THEN
			pg_catalog.clock_timestamp() + x.retry_in * interval '1 microsecond' ELSE m.next_attempt_at END,
		failing_since = CASE
			WHEN x.outcome = 'ok' THEN m.failing_since
			WHEN m.failing_since IS NULL OR m.failing_since > x.began THEN x.began -- later: the clock was ahead
			WHEN x.began > m.next_attempt_at + x.most_late * interval '1 microsecond' THEN
				m.failing_since + extract(epoch FROM x.began - m.next_attempt_at) * interval '1 second'
			ELSE m.failing_since END,
		finished_at = CASE x.outcome WHEN 'transient' THEN NULL ELSE pg_catalog.clock_timestamp() END,
		last_error = CASE x.outcome WHEN 'ok' THEN m.last_error ELSE x.error END
	FROM mine JOIN results AS x ON x.seq = mine.seq AND x.attempts = mine.attempts
	WHERE m.seq = ANY (ARRAY(SELECT y.seq FROM mine AS y)) AND m.seq = mine.seq
	RETURNING m.seq, m.message_id, m.attempts, x.outcome, x.took, x.node, x.error
),
history AS (
	INSERT INTO {attempts} (message, attempt, at, took, node, outcome, error)
	SELECT w.seq, w.attempts, pg_catalog.clock_timestamp(), w.took, w.node, w.outcome, w.error FROM written AS w
),
forgotten AS (
	DELETE FROM {attempts} AS a
	WHERE a.message = ANY (ARRAY(SELECT w.seq FROM written AS w WHERE w.attempts > {first_attempts} + {last_attempts}))
		AND a.attempt > {first_attempts}
		AND a.attempt <= (SELECT w.attempts - {last_attempts} FROM written AS w WHERE w.seq = a.message)
)
SELECT pg_catalog.uuid_send(w.message_id), false FROM written AS w
UNION ALL
SELECT pg_catalog.uuid_send(x.id), a.message IS NULL
FROM results AS x JOIN {messages} AS m ON m.seq = x.seq AND m.message_id = x.id
	LEFT JOIN {attempts} AS a ON a.message = x.seq AND a.attempt = x.attempts + 1
WHERE m.seq = ANY (ARRAY(SELECT y.seq FROM results AS y)) AND x.seq NOT IN (SELECT w.seq FROM written AS w)
	AND (a.outcome = x.outcome COLLATE "C" AND a.node = x.node COLLATE "C"
		OR a.message IS NULL AND m.attempts = x.attempts AND m.state = 'pending')
