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

-- name: history
-- ?1: the handler, ?2: the number of outcomes, ?3: the most failures of a sort. Only the last runs
-- are read, however many have ended or wait.
WITH s AS MATERIALIZED (
	SELECT max(at) AS at FROM (SELECT finished_at AS at FROM {runs}
		WHERE handler = ?1 AND state = 'succeeded' AND finished_at IS NOT NULL ORDER BY finished_at DESC LIMIT 1)
),
ended AS MATERIALIZED (
	SELECT state, finished_at FROM (
		SELECT * FROM (SELECT state, finished_at, id FROM {runs}
			WHERE handler = ?1 AND state = 'succeeded' AND finished_at IS NOT NULL ORDER BY finished_at DESC LIMIT ?2)
		UNION ALL
		SELECT * FROM (SELECT state, finished_at, id FROM {runs}
			WHERE handler = ?1 AND state = 'dead' AND finished_at IS NOT NULL ORDER BY finished_at DESC LIMIT ?2)
		UNION ALL
		SELECT * FROM (SELECT state, finished_at, id FROM {runs}
			WHERE handler = ?1 AND state = 'canceled' AND finished_at IS NOT NULL ORDER BY finished_at DESC LIMIT ?2)
	) ORDER BY finished_at DESC, id DESC LIMIT ?2
),
failed AS MATERIALIZED (
	SELECT * FROM (
		SELECT 2 AS place, coalesce(failing_since, finished_at) AS since, finished_at AS at, last_error FROM {runs}
		WHERE handler = ?1 AND state = 'dead' AND finished_at IS NOT NULL
			AND finished_at > coalesce((SELECT at FROM s), -1)
		ORDER BY finished_at LIMIT ?3)
	UNION ALL
	SELECT 1, failing_since, claimed_at, last_error FROM (
		SELECT failing_since, claimed_at, last_error FROM {runs}
		WHERE handler = ?1 AND state = 'queued' AND failing_since IS NOT NULL ORDER BY failing_since DESC LIMIT ?3
	) WHERE claimed_at >= coalesce((SELECT at FROM s), -1)
	UNION ALL
	SELECT 0, failing_since, claimed_at, last_error FROM ( -- when the attempt before the current one began is not known
		SELECT failing_since, claimed_at, last_error FROM {runs} WHERE handler = ?1 AND state = 'running' LIMIT ?3
	) WHERE failing_since >= coalesce((SELECT at FROM s), -1)
)
SELECT (SELECT max(finished_at) FROM ended), (SELECT at FROM s),
	coalesce((SELECT group_concat(substr(state, 1, 1), '') FROM ended), ''), (SELECT count(*) FROM failed),
	(SELECT max(min(since), coalesce((SELECT at FROM s), -1)) FROM failed),
	coalesce((SELECT last_error FROM failed ORDER BY place, at DESC LIMIT 1), '')

-- name: flow
-- ?1: the length of an interval, ?2: how long ago the oldest begins, both in µs, ?3: how many runs
-- of each part are read at most. The newest runs are those with the highest ids.
SELECT 'in', handler, created_at / ?1, count(*), {now}
FROM (SELECT handler, created_at FROM {runs} ORDER BY id DESC LIMIT ?3) WHERE created_at > {now} - ?2 GROUP BY 2, 3
UNION ALL
SELECT 'succeeded', handler, finished_at / ?1, count(*), {now}
FROM (SELECT handler, finished_at FROM {runs} WHERE state = 'succeeded' AND finished_at IS NOT NULL
	ORDER BY finished_at DESC LIMIT ?3) WHERE finished_at > {now} - ?2 GROUP BY 2, 3
UNION ALL
SELECT 'dead', handler, finished_at / ?1, count(*), {now}
FROM (SELECT handler, finished_at FROM {runs} WHERE state = 'dead' AND finished_at IS NOT NULL
	ORDER BY finished_at DESC LIMIT ?3) WHERE finished_at > {now} - ?2 GROUP BY 2, 3
UNION ALL
SELECT 'canceled', handler, finished_at / ?1, count(*), {now}
FROM (SELECT handler, finished_at FROM {runs} WHERE state = 'canceled' AND finished_at IS NOT NULL
	ORDER BY finished_at DESC LIMIT ?3) WHERE finished_at > {now} - ?2 GROUP BY 2, 3
UNION ALL
SELECT 'now', '', 0, 0, {now}
