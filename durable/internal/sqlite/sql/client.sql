-- name: insert
-- The run is due at ?5, or, if that is NULL, after ?6. Returns no row if a unique index refuses the
-- run.
INSERT INTO {runs} (handler, schedule, due_at, backfill, run_at, priority, own_max_attempts, max_attempts, key,
	payload, by, note, traceparent, created_at, key_until, key_expires_at, partition_key)
VALUES (?1, ?2, ?3, ?4, coalesce(?5, {now} + ?6), ?7, ?8, ?8, ?9, ?10, ?11, ?12, ?13, {now}, ?14, {now} + ?15,
	?16)
ON CONFLICT DO NOTHING RETURNING id

-- name: holds_key
-- Reports whether the run still has its key. The condition is the same as in the index of keys.
CASE key_until WHEN 'started' THEN state = 'queued' AND attempt = 0
		WHEN 'ended' THEN state IN ('queued', 'running') ELSE true END

-- name: by_key
SELECT id FROM {runs} WHERE handler = ?1 AND key = ?2 AND {holds_key}

-- name: release_key
-- Takes an expired key from its run.
UPDATE {runs} SET key = NULL WHERE handler = ?1 AND key = ?2 AND {holds_key} AND key_expires_at <= {now} RETURNING id

-- name: state
SELECT state FROM {runs} WHERE id = ?1

-- name: cancel
UPDATE {runs} SET canceled_by = ?2, canceled_note = ?3,
	finished_at = CASE state WHEN 'running' THEN finished_at ELSE {now} END,
	state = CASE state WHEN 'running' THEN state ELSE 'canceled' END
WHERE id = ?1

-- name: to_requeue
-- The runs that can be queued again. The code adds the conditions of a filter.
SELECT id FROM {runs} WHERE state IN ('dead', 'canceled') AND finished_at IS NOT NULL

-- name: requeue
-- ?1 who, ?2 why, ?3 the runs, as JSON. A run of a tick that never began becomes a backfill, so
-- that it does not conflict with the run of its schedule that waits.
UPDATE {runs} SET state = 'queued', key = CASE key_until WHEN '' THEN key END, run_at = {now},
	finished_at = NULL, by = ?1, note = ?2,
	max_attempts = CASE max_attempts WHEN 0 THEN 0 ELSE max_attempts - attempts_before + attempt END,
	attempts_before = attempt, crashes = 0, failing_since = NULL,
	backfill = backfill OR attempt = 0 AND schedule IS NOT NULL, canceled_by = NULL, canceled_note = NULL
WHERE id IN (SELECT value FROM json_each(?3))

-- name: set_handler
-- ?1 name; ?2 the length of the pause, 0: resume; ?3 the override, -1: none; NULL leaves a value
-- unchanged; ?4 who, ?5 why
INSERT INTO {handlers} AS h (name, paused_until, paused_by, paused_note, override, override_by, override_note)
VALUES (?1,
	CASE WHEN ?2 > 0 THEN {now} + ?2 END, CASE WHEN ?2 > 0 THEN ?4 ELSE '' END, CASE WHEN ?2 > 0 THEN ?5 ELSE '' END,
	CASE WHEN ?3 >= 0 THEN ?3 END, CASE WHEN ?3 IS NULL THEN '' ELSE ?4 END, CASE WHEN ?3 IS NULL THEN '' ELSE ?5 END)
ON CONFLICT (name) DO UPDATE SET
	paused_until = CASE WHEN ?2 IS NULL THEN h.paused_until ELSE excluded.paused_until END,
	paused_by = CASE WHEN ?2 IS NULL THEN h.paused_by ELSE excluded.paused_by END,
	paused_note = CASE WHEN ?2 IS NULL THEN h.paused_note ELSE excluded.paused_note END,
	override = CASE WHEN ?3 IS NULL THEN h.override ELSE excluded.override END,
	override_by = CASE WHEN ?3 IS NULL THEN h.override_by ELSE excluded.override_by END,
	override_note = CASE WHEN ?3 IS NULL THEN h.override_note ELSE excluded.override_note END

-- name: set_schedule
-- ?1 name; ?2 the length of the pause, 0: resume; ?3 who, ?4 why. The columns of a pause that is
-- over are kept: they show which ticks came due in it, so that those are not caught up.
INSERT INTO {schedules} AS s (name, paused_at, paused_until, paused_by, paused_note, created_at)
VALUES (?1, {now}, {now} + max(0, ?2), ?3, ?4, {now})
ON CONFLICT (name) DO UPDATE SET
	paused_at = CASE WHEN ?2 <= 0 OR s.paused_until > excluded.paused_at THEN s.paused_at ELSE excluded.paused_at END,
	paused_until = CASE WHEN ?2 > 0 OR s.paused_until > excluded.paused_until THEN excluded.paused_until
		ELSE s.paused_until END,
	paused_by = excluded.paused_by, paused_note = excluded.paused_note

-- name: forget_schedule
DELETE FROM {schedules} WHERE name = ?1
