-- name: columns
id, attempt, claim, handler, schedule, due_at, backfill, state, priority, run_at, max_attempts, attempts_before,
	failing_since, CASE WHEN key_until = '' AND key_expires_at IS NULL THEN key END, partition_key, nonce,
	coalesce(length(payload), 0), by, note, traceparent, canceled_by,
	canceled_note, worker, claimed_at, lease_until, last_error,
	created_at, finished_at

-- name: run
SELECT {columns}, payload FROM {runs} WHERE id = ?1

-- name: next_queued
SELECT id, handler, coalesce(key, ''), payload, run_at, priority, by, note, coalesce(traceparent, '') FROM {runs}
WHERE state = 'queued' AND id > ?1 ORDER BY id LIMIT 1

-- name: list_attempts
SELECT attempt, worker, started_at, finished_at, outcome, error
FROM {attempts} WHERE run_id = ?1 ORDER BY attempt

-- name: list_schedules
SELECT name, handler, spec, text, next_due_at, last_due_at, seen_at,
	CASE WHEN paused_until > {now} THEN paused_until END, paused_by, paused_note,
	ticks_queued, ticks_coalesced, ticks_skipped, ticks_paused
FROM {schedules} ORDER BY name

-- name: list_handlers
SELECT name, max_concurrency, max_per_partition, rate, per, coalesce(override, -1), override_by, override_note,
	CASE WHEN paused_until > {now} THEN paused_until END, paused_by, paused_note, seen_at,
	(SELECT count(*) FROM {runs} WHERE state = 'queued' AND handler = h.name),
	(SELECT count(*) FROM {runs} WHERE state = 'running' AND handler = h.name),
	(SELECT count(*) FROM {runs} WHERE state = 'dead' AND handler = h.name)
FROM {handlers} AS h ORDER BY name
