-- $1: how many runs at most, $2: what is noted as their error, $3: after how many lost leases a run
-- is dead; 0: any number.
WITH now AS MATERIALIZED (SELECT clock_timestamp() AS at),
expired AS MATERIALIZED (
	SELECT r.id FROM {runs} AS r, now WHERE r.state = 'running' AND r.lease_until <= now.at
	ORDER BY r.lease_until LIMIT $1::bigint
	FOR NO KEY UPDATE OF r SKIP LOCKED
),
reclaimed AS (
	UPDATE {runs} AS r SET
		state = CASE WHEN r.canceled_by IS NOT NULL THEN 'canceled'
			WHEN r.attempt >= r.uncounted + nullif(r.max_attempts, 0)
				OR r.crashes + 1 >= nullif($3::integer, 0) THEN 'dead'
			ELSE 'queued' END,
		finished_at = CASE WHEN r.canceled_by IS NOT NULL OR r.attempt >= r.uncounted + nullif(r.max_attempts, 0)
			OR r.crashes + 1 >= nullif($3::integer, 0) THEN now.at END,
		crashes = r.crashes + 1,
		failing_since = coalesce(r.failing_since, r.claimed_at),
		last_error = $2::text,
		lease_until = NULL
	FROM now WHERE r.id = ANY (ARRAY(SELECT id FROM expired))
	RETURNING r.id, r.attempt, r.claim,
		CASE r.max_attempts WHEN 0 THEN 0 ELSE r.uncounted + r.max_attempts END AS max_attempts,
		r.crashes, r.handler, r.worker, r.schedule, r.state,
		r.claimed_at
),
attempts AS (
	INSERT INTO {attempts} (run_id, attempt, worker, started_at, finished_at, outcome, error, claim)
	SELECT r.id, r.attempt, r.worker, r.claimed_at, now.at, 'lease_lost', $2::text, r.claim FROM reclaimed AS r, now
),
forgotten AS ({forget_reclaimed})
SELECT id, attempt, claim, max_attempts, crashes, handler, worker, coalesce(schedule, ''), state = 'dead',
	state = 'canceled'
FROM reclaimed
