-- $1: results as JSON, $2: the worker. A row that is locked is passed over, and answered as one
-- that is not sure; so is one that somebody has changed since this statement began.
--
-- Rows are found by their ids, in an array. A connection may use a plan that was made while the
-- tables were empty, and that would read a whole index now: in a join, or the index of running
-- runs. "state || ''" matches no index.
WITH now AS MATERIALIZED (SELECT clock_timestamp() AS at),
results AS MATERIALIZED (
	SELECT * FROM json_to_recordset($1::text::json) AS x(id bigint, attempt integer, claim bigint, outcome text,
		state text, error text, retry_in bigint, took bigint)
),
mine AS MATERIALIZED (
	SELECT r.id, r.attempt, r.claim FROM {runs} AS r JOIN results AS x ON x.id = r.id
	WHERE r.id = ANY (ARRAY(SELECT id FROM results)) AND r.attempt = x.attempt AND r.state || '' = 'running'
		AND r.claim = x.claim AND r.worker = $2::text
	ORDER BY r.id
	FOR NO KEY UPDATE OF r SKIP LOCKED
),
finished AS (
	UPDATE {runs} AS r SET
		state = CASE WHEN x.state = 'queued' AND r.canceled_by IS NOT NULL THEN 'canceled' ELSE x.state END,
		run_at = CASE x.state WHEN 'queued' THEN now.at + x.retry_in * interval '1 microsecond' ELSE r.run_at END,
		uncounted = r.uncounted + CASE x.outcome WHEN 'interrupted' THEN 1 ELSE 0 END,
		failing_since = CASE WHEN x.outcome IN ('ok', 'interrupted', 'canceled') THEN r.failing_since
			ELSE coalesce(r.failing_since, r.claimed_at) END,
		finished_at = CASE WHEN x.state = 'queued' AND r.canceled_by IS NULL THEN NULL ELSE now.at END,
		last_error = coalesce(nullif(x.error, ''), r.last_error),
		lease_until = NULL
	FROM mine JOIN results AS x ON x.id = mine.id AND x.attempt = mine.attempt AND x.claim = mine.claim, now
	WHERE r.id = ANY (ARRAY(SELECT id FROM mine)) AND r.id = mine.id
	RETURNING r.id, r.attempt, r.claim, r.worker, r.claimed_at, x.outcome, x.error, x.took
),
attempts AS (
	INSERT INTO {attempts} (run_id, attempt, worker, started_at, finished_at, outcome, error, claim)
	SELECT f.id, f.attempt, f.worker, f.claimed_at,
		greatest(f.claimed_at, least(now.at, f.claimed_at + f.took * interval '1 microsecond')), f.outcome, f.error,
		f.claim
	FROM finished AS f, now
),
forgotten AS ({forget_finished})
SELECT id, attempt, claim, true FROM finished
UNION ALL
SELECT x.id, x.attempt, x.claim, true FROM results AS x JOIN {attempts} AS a ON a.run_id = x.id
WHERE a.run_id = ANY (ARRAY(SELECT id FROM results)) AND a.attempt = x.attempt AND a.claim = x.claim
	AND a.outcome = x.outcome COLLATE "C"
UNION ALL
SELECT r.id, r.attempt, r.claim, false FROM {runs} AS r JOIN results AS x ON x.id = r.id
WHERE r.id = ANY (ARRAY(SELECT id FROM results)) AND r.attempt = x.attempt AND r.state || '' = 'running'
	AND r.claim = x.claim AND r.worker = $2::text AND r.id NOT IN (SELECT id FROM mine)
