-- now is the current time in microseconds, exact to the millisecond. SQLite reads the clock of the
-- machine; the time is constant within a statement. julianday is the oldest function with
-- milliseconds. round removes the error of its float64.

-- name: now
(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)

-- name: register_handler
-- ?1 name, ?2 max_concurrency, ?3 max_per_partition, ?4 rate, ?5 per
INSERT INTO {handlers} (name, max_concurrency, max_per_partition, rate, per, seen_at) VALUES (?1, ?2, ?3, ?4, ?5, {now})
ON CONFLICT (name) DO UPDATE SET max_concurrency = excluded.max_concurrency,
	max_per_partition = excluded.max_per_partition, rate = excluded.rate, per = excluded.per, seen_at = excluded.seen_at

-- name: peers
SELECT {now}, peers FROM {handlers} WHERE name = ?1

-- name: note_peers
-- ?1 the handler, ?2 its peers
INSERT INTO {handlers} (name, peers) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET peers = excluded.peers

-- name: register_schedule
-- ?1 name, ?2 handler, ?3 spec, ?4 text, ?5 whether to take over a row with another spec. If
-- seen_at is in the future, the clock was ahead when the row was written: the next tick is planned
-- again, and a pause that was over by then stays over.
INSERT INTO {schedules} AS s (name, handler, spec, text, seen_at, created_at)
VALUES (?1, ?2, ?3, ?4, {now}, {now})
ON CONFLICT (name) DO UPDATE SET handler = excluded.handler, spec = excluded.spec, text = excluded.text,
	seen_at = excluded.seen_at,
	next_spec = CASE WHEN s.seen_at > excluded.seen_at + {ahead} THEN '' ELSE s.next_spec END,
	paused_at = CASE WHEN s.seen_at > excluded.seen_at + {ahead} AND s.paused_until > excluded.seen_at
		AND s.paused_until <= s.seen_at THEN NULL ELSE s.paused_at END,
	paused_until = CASE WHEN s.seen_at > excluded.seen_at + {ahead} AND s.paused_until > excluded.seen_at
		AND s.paused_until <= s.seen_at THEN NULL ELSE s.paused_until END
WHERE ?5 OR s.spec IN ('', excluded.spec)

-- name: next_due
SELECT {now}, (SELECT min(plan_at) FROM {schedules} WHERE plan_at > {now})

-- name: due
-- Up to ?4 schedules that need a plan at ?1, after the one with plan_at ?2 and name ?3.
SELECT name, spec, next_spec, next_due_at, paused_at, paused_until
FROM {schedules} WHERE (plan_at, name) > (?2, ?3) AND plan_at <= ?1 ORDER BY plan_at, name LIMIT ?4

-- name: materialized
-- Moves a schedule forward before its runs are inserted, if it is unchanged since it was planned.
-- ?1 name, ?2 spec, ?3 next_spec, ?4 next_due_at, ?5 paused_at, ?6 paused_until; ?7 the next tick,
-- ?8 the latest tick accounted for, ?9 to ?11 the numbers of coalesced, skipped and paused ticks.
UPDATE {schedules} SET next_spec = spec, next_due_at = ?7, last_due_at = coalesce(?8, last_due_at),
	ticks_coalesced = ticks_coalesced + ?9, ticks_skipped = ticks_skipped + ?10, ticks_paused = ticks_paused + ?11
WHERE name = ?1 AND spec = ?2 AND next_spec = ?3 AND next_due_at IS ?4 AND paused_at IS ?5 AND paused_until IS ?6

-- name: count_ticks
UPDATE {schedules} SET ticks_queued = ticks_queued + ?2, ticks_coalesced = ticks_coalesced + ?3 WHERE name = ?1

-- name: look_all
-- The time, the override of MaxActive or -1, and the number of running runs.
SELECT {now}, coalesce((SELECT override FROM {handlers} WHERE name = ''), -1),
	(SELECT count(*) FROM {runs} WHERE state = 'running')

-- name: look
-- Returns the input to a claim's decision, for each handler in the JSON array ?1 and each priority:
-- the override or -1; whether the handler is paused; its latest starts and its peers; how many of
-- its runs are running, and how many of those on worker ?4; up to ?2 runs that are due at ?3; and
-- when the next run after ?3 is due.
SELECT wanted.value, coalesce(h.override, -1), coalesce(h.paused_until > ?3, 0), coalesce(h.starts, ''),
	coalesce(h.peers, ''), (SELECT count(*) FROM {runs} WHERE state = 'running' AND handler = wanted.value),
	(SELECT count(*) FROM {runs} WHERE state = 'running' AND handler = wanted.value AND worker = ?4),
	(SELECT json_group_array(json_array(p.column1, run_at, id)) FROM (
		SELECT run_at, id FROM {runs} WHERE state = 'queued' AND handler = wanted.value AND priority = p.column1
			AND run_at <= ?3 ORDER BY run_at, id LIMIT ?2)),
	(SELECT min(run_at) FROM {runs} WHERE state = 'queued' AND handler = wanted.value AND priority = p.column1
		AND run_at > ?3)
FROM json_each(?1) AS wanted, (VALUES (-1), (0), (1)) AS p LEFT JOIN {handlers} AS h ON h.name = wanted.value

-- name: look_partitions
-- Returns the input to a claim's decision for up to ?5 partitions of handler ?1 after ?4 that have
-- queued runs, and for the runs without a partition. For each partition and each priority it
-- returns the number of the partition, how many of its runs are running, and up to ?2 runs that are
-- due at ?3. If ?6 runs of the partition are running, it returns no due run.
WITH RECURSIVE found(part, n) AS (
	SELECT (SELECT min(partition_key) FROM {runs} WHERE state = 'queued' AND handler = ?1 AND partition_key > ?4), 1
	UNION ALL
	SELECT (SELECT min(partition_key) FROM {runs} WHERE state = 'queued' AND handler = ?1
		AND partition_key > found.part), n + 1 FROM found WHERE part IS NOT NULL AND n < ?5
), rooms(part, n, running) AS MATERIALIZED (
	SELECT part, n, (SELECT count(*) FROM {runs} WHERE state = 'running' AND handler = ?1 AND partition_key = part)
	FROM found WHERE part IS NOT NULL
	UNION ALL SELECT '', 0, 0
)
SELECT part, n, running, CASE WHEN running >= ?6 THEN '[]' ELSE
	(SELECT json_group_array(json_array(p.column1, run_at, id)) FROM (
		SELECT run_at, id FROM {runs} WHERE state = 'queued' AND handler = ?1 AND partition_key = rooms.part
			AND priority = p.column1 AND run_at <= ?3 ORDER BY run_at, id LIMIT ?2)) END
FROM rooms, (VALUES (-1), (0), (1)) AS p ORDER BY n

-- name: claim
-- Claims a run: ?1 id, ?2 worker, ?3 now, ?4 lease_until, ?5 how many attempts the handler allows
-- (0: any number), ?6 the random value of the claim.
UPDATE {runs} SET state = 'running', attempt = attempt + 1, worker = ?2, claim = ?6, claimed_at = ?3, lease_until = ?4,
	max_attempts = coalesce(attempts_before +
		nullif(CASE WHEN own_max_attempts > 0 THEN own_max_attempts ELSE ?5 END, 0), 0)
WHERE id = ?1 RETURNING {columns}, payload

-- name: note_starts
-- ?1 the handler, ?2 its latest starts
INSERT INTO {handlers} (name, starts) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET starts = excluded.starts

-- name: renew
-- ?1 worker, ?2 [[id, attempt, claim], …], ?3 the length of the lease
UPDATE {runs} SET lease_until = {now} + ?3
FROM (SELECT value ->> 0 AS id, value ->> 1 AS attempt, value ->> 2 AS claim FROM json_each(?2)) AS mine
WHERE {runs_name}.id = mine.id AND {runs_name}.attempt = mine.attempt AND {runs_name}.claim = mine.claim
	AND state = 'running' AND worker = ?1
RETURNING id, attempt, {runs_name}.claim, canceled_by IS NOT NULL, canceled_by, canceled_note

-- name: attempt
-- Ends attempt ?2 of run ?1 by worker ?3 if the attempt is in progress. ?4 outcome, ?5 error, ?6
-- how long it took (NULL: until now), ?7 the random value of its claim.
INSERT INTO {attempts} (run_id, attempt, worker, started_at, finished_at, outcome, error, claim)
SELECT id, attempt, worker, claimed_at, min({now}, claimed_at + coalesce(?6, {now} - claimed_at)), ?4, ?5, claim
FROM {runs} WHERE id = ?1 AND attempt = ?2 AND worker = ?3 AND claim = ?7 AND state = 'running'

-- name: finish
-- Stores the result of an attempt of run ?1: ?2 the new state, ?3 an error or '', ?4 how soon the
-- run is due again, ?5 how many attempts to add because this one does not count, ?6 whether the
-- attempt failed, ?7 how many leases it lost. If cancellation was requested, the run is not queued
-- again.
UPDATE {runs} SET
	state = CASE WHEN ?2 = 'queued' AND canceled_by IS NOT NULL THEN 'canceled' ELSE ?2 END,
	finished_at = CASE WHEN ?2 = 'queued' AND canceled_by IS NULL THEN NULL ELSE {now} END,
	run_at = CASE WHEN ?2 = 'queued' THEN {now} + ?4 ELSE run_at END,
	attempts_before = attempts_before + ?5, max_attempts = CASE max_attempts WHEN 0 THEN 0 ELSE max_attempts + ?5 END,
	failing_since = CASE WHEN ?6 THEN coalesce(failing_since, claimed_at) ELSE failing_since END,
	crashes = crashes + ?7,
	last_error = CASE WHEN ?3 <> '' THEN ?3 ELSE last_error END, lease_until = NULL
WHERE id = ?1

-- name: forget_attempts
-- Deletes attempts of run ?1, whose latest attempt is ?2. It keeps the first and the latest
-- attempts.
DELETE FROM {attempts} WHERE run_id = ?1 AND attempt > {first} AND attempt <= ?2 - {last}

-- name: written
SELECT 1 FROM {attempts} WHERE run_id = ?1 AND attempt = ?2 AND worker = ?3 AND outcome = ?4 AND claim = ?5

-- name: expired
-- ?1: the maximum number of runs; ?2: after how many lost leases a run is dead (0: never).
SELECT id, attempt, claim, max_attempts, crashes + 1, handler, schedule, worker,
	coalesce(attempt >= nullif(max_attempts, 0), 0) OR coalesce(crashes + 1 >= nullif(?2, 0), 0),
	canceled_by IS NOT NULL
FROM {runs}
WHERE state = 'running' AND lease_until < {now} ORDER BY lease_until, id LIMIT ?1

-- name: overdue
SELECT {now}, (SELECT min(next_due_at) FROM {schedules}
	WHERE spec <> '' AND next_due_at <= {now} AND seen_at >= {now} - ?1)

-- name: stats
-- ?1 is the current time.
SELECT handler, sum(queued), sum(running), sum(dead), min(oldest), max(seen_at), max(paused) FROM (
	SELECT handler, count(*) AS queued, 0 AS running, 0 AS dead,
		min(CASE WHEN run_at <= ?1 THEN run_at END) AS oldest, NULL AS seen_at, 0 AS paused
	FROM {runs} WHERE state = 'queued' GROUP BY handler
	UNION ALL
	SELECT handler, 0, count(*), 0, NULL, NULL, 0 FROM {runs} WHERE state = 'running' GROUP BY handler
	UNION ALL
	SELECT handler, 0, 0, count(*), NULL, NULL, 0 FROM {runs} WHERE state = 'dead' GROUP BY handler
	UNION ALL
	SELECT name, 0, 0, 0, NULL, seen_at, coalesce(paused_until > ?1, 0) FROM {handlers} WHERE name <> '')
GROUP BY handler ORDER BY handler

-- name: old
-- Up to ?4 runs that ended longer ago than ?1 (succeeded), ?2 (dead) or ?3 (canceled). 0 keeps the
-- runs of that state.
SELECT id FROM (
	SELECT id FROM {runs} WHERE ?1 > 0 AND state = 'succeeded' AND finished_at < {now} - ?1
	UNION ALL
	SELECT id FROM {runs} WHERE ?2 > 0 AND state = 'dead' AND finished_at < {now} - ?2
	UNION ALL
	SELECT id FROM {runs} WHERE ?3 > 0 AND state = 'canceled' AND finished_at < {now} - ?3)
LIMIT ?4

-- name: delete_attempts
DELETE FROM {attempts} WHERE run_id IN (SELECT value FROM json_each(?1))

-- name: delete_runs
DELETE FROM {runs} WHERE id IN (SELECT value FROM json_each(?1))

-- name: delete_schedules
-- Deletes up to ?2 schedules that were last seen longer ago than ?1.
DELETE FROM {schedules} WHERE name IN (SELECT name FROM {schedules} WHERE name <> ''
	AND seen_at < {now} - ?1 AND coalesce(paused_until <= {now}, 1) LIMIT ?2)

-- name: delete_handlers
-- Deletes up to ?2 handlers that were last seen longer ago than ?1.
DELETE FROM {handlers} WHERE name IN (SELECT name FROM {handlers} WHERE name <> ''
	AND seen_at < {now} - ?1 AND coalesce(paused_until <= {now}, 1) AND override IS NULL
	AND CAST(substr(starts, -26, 16) AS INTEGER) < {now} - {max_per} LIMIT ?2)
