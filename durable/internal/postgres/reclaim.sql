-- $1: how many runs at most, $2: what is noted as their error.
WITH now AS MATERIALIZED (SELECT clock_timestamp() AS at),
expired AS MATERIALIZED (
	SELECT r.id FROM {runs} AS r, now WHERE r.state = 'running' AND r.lease_until <= now.at
	ORDER BY r.lease_until LIMIT $1::bigint
	FOR NO KEY UPDATE OF r SKIP LOCKED
),
reclaimed AS (
	UPDATE {runs} AS r SET
		state = CASE WHEN r.canceled_by IS NOT NULL THEN 'canceled'
			WHEN r.attempt >= r.uncounted + r.max_attempts THEN 'dead' ELSE 'queued' END,
		finished_at = CASE WHEN r.canceled_by IS NOT NULL OR r.attempt >= r.uncounted + r.max_attempts THEN now.at END,
		last_error = $2::text,
		lease_until = NULL
	FROM now WHERE r.id = ANY (ARRAY(SELECT id FROM expired))
	RETURNING r.id, r.attempt, r.uncounted + r.max_attempts AS max_attempts, r.handler, r.worker, r.schedule, r.state,
		r.claimed_at
),
attempts AS (
	INSERT INTO {attempts} (run_id, attempt, worker, started_at, finished_at, outcome, error)
	SELECT r.id, r.attempt, r.worker, r.claimed_at, now.at, 'lease_lost', $2::text FROM reclaimed AS r, now
)
SELECT id, attempt, max_attempts, handler, worker, coalesce(schedule, ''), state = 'dead', state = 'canceled'
FROM reclaimed
