-- name: columns
r.id, r.attempt, r.claim, r.handler, r.schedule, r.due_at, r.backfill, r.state, r.priority, r.run_at,
	CASE r.max_attempts WHEN 0 THEN 0 ELSE r.uncounted + r.max_attempts END, r.uncounted, r.failing_since,
	CASE WHEN r.key_until = '' AND r.key_expires_at IS NULL THEN r.key END, r.partition_key, r.nonce::text,
	coalesce(length(r.payload), 0), r.queued_by, r.queued_note, r.traceparent,
	r.canceled_by, r.canceled_note, r.worker, r.claimed_at, r.lease_until, r.last_error,
	r.created_at, r.finished_at

-- name: run
SELECT r.payload, {columns} FROM {runs} AS r WHERE r.id = $1::bigint

-- name: next_queued
SELECT r.id, r.handler, coalesce(r.key, ''), r.payload, (extract(epoch FROM r.run_at) * 1000000)::bigint,
	r.priority::bigint, coalesce(r.queued_by, ''), coalesce(r.queued_note, ''), coalesce(r.traceparent, '')
FROM {runs} AS r WHERE r.state = 'queued' AND r.id > $1::bigint ORDER BY r.id LIMIT 1

-- name: list_attempts
SELECT a.attempt, a.worker, a.started_at, a.finished_at, a.outcome, a.error
FROM {attempts} AS a WHERE a.run_id = $1::bigint ORDER BY a.attempt

-- name: list_runs
-- The code fills in the source of the runs at "which".
SELECT NULL::bytea, {columns} FROM (/* which */) AS r ORDER BY r.id DESC LIMIT $1::bigint

-- name: of_state
-- A part of list_runs: the newest runs in a state, whether there are few of them or a backlog. The
-- code fills in the condition on the state and the filter at "which", and the condition on the id
-- at "after".
--
-- If there are few runs, the statement finds them by the index of their state and sorts them. With
-- a backlog that would read every run in it. So the statement searches the newest {max_scanned}
-- runs of any state, and sorts the whole backlog only if these do not include enough runs.
WITH sample AS MATERIALIZED (
	SELECT r.id FROM {runs} AS r WHERE /* which */ LIMIT {max_sorted} + 1
),
newest AS MATERIALIZED (
	SELECT r.* FROM (
		SELECT r.* FROM {runs} AS r WHERE (SELECT count(*) > {max_sorted} FROM sample) /* after */
		ORDER BY r.id DESC LIMIT {max_scanned}
	) AS r WHERE /* which */ ORDER BY r.id DESC LIMIT $1::bigint
)
SELECT r.* FROM {runs} AS r WHERE r.id = ANY (ARRAY(
	SELECT s.id FROM sample AS s WHERE (SELECT count(*) <= {max_sorted} FROM sample) ORDER BY s.id DESC LIMIT $1::bigint
))
UNION ALL
SELECT n.* FROM newest AS n WHERE (SELECT count(*) = $1::bigint FROM newest)
UNION ALL
(SELECT r.* FROM {runs} AS r
	WHERE (SELECT count(*) > {max_sorted} FROM sample) AND (SELECT count(*) < $1::bigint FROM newest) AND /* which */
	ORDER BY r.id + 0 DESC LIMIT $1::bigint)

-- name: list_schedules
SELECT s.name, s.handler, s.spec, s.description, s.next_due_at, s.last_due_at, s.seen_at,
	CASE WHEN s.paused_until > clock_timestamp() THEN s.paused_until END, coalesce(s.paused_by, ''),
	coalesce(s.paused_note, ''), s.ticks_queued, s.ticks_coalesced, s.ticks_skipped, s.ticks_paused
FROM {schedules} AS s ORDER BY s.name

-- name: list_handlers
-- $1: after how many microseconds unseen a schedule counts as one that no worker has. Lists the
-- handlers that have a row or a run. It counts no more than {max_counted} queued runs of each
-- handler, because every worker runs this statement often and a backlog may have millions of runs.
-- The first three columns are the same in all rows and are computed once. If there is no handler,
-- there is one row with these columns.
WITH RECURSIVE now AS MATERIALIZED (SELECT clock_timestamp() AS at),
-- The handlers that have queued runs, with one index probe per handler, no matter how many runs are
-- queued.
waiting AS (
	(SELECT r.handler FROM {runs} AS r WHERE r.state = 'queued' ORDER BY r.handler LIMIT 1)
	UNION ALL
	SELECT (SELECT r.handler FROM {runs} AS r WHERE r.state = 'queued' AND r.handler > w.handler
		ORDER BY r.handler LIMIT 1)
	FROM waiting AS w WHERE w.handler IS NOT NULL
),
counts AS MATERIALIZED (
	SELECT x.handler, sum(x.queued)::bigint AS queued, sum(x.running)::bigint AS running, sum(x.dead)::bigint AS dead,
		min(x.oldest) AS oldest
	FROM (
		SELECT w.handler, (SELECT count(*) FROM (SELECT FROM {runs} AS r WHERE r.state = 'queued'
				AND r.handler = w.handler LIMIT {max_counted}) AS c) AS queued, 0 AS running, 0 AS dead,
			(SELECT min(o.run_at) FROM {priorities}, LATERAL (SELECT r.run_at FROM {runs} AS r WHERE r.state = 'queued'
				AND r.handler = w.handler AND r.priority = p.priority AND r.run_at <= now.at
				ORDER BY r.run_at LIMIT 1) AS o) AS oldest
		FROM waiting AS w, now WHERE w.handler IS NOT NULL
		UNION ALL
		SELECT r.handler, 0, count(*), 0, NULL FROM {runs} AS r WHERE r.state = 'running' GROUP BY r.handler
		UNION ALL
		SELECT r.handler, 0, 0, count(*), NULL FROM {runs} AS r
		WHERE r.state = 'dead' AND r.finished_at IS NOT NULL GROUP BY r.handler
	) AS x GROUP BY x.handler
),
overdue AS MATERIALIZED (
	SELECT min(s.next_due_at) AS at FROM {schedules} AS s, now
	WHERE s.next_due_at <= now.at AND s.seen_at >= now.at - $1::bigint * interval '1 microsecond'
)
SELECT now.at, (SELECT min(c.oldest) FROM counts AS c),
	overdue.at,
	a.name, a.registered, coalesce(a.max_concurrency, 0), coalesce(a.max_per_partition, 0), coalesce(a.rate, 0),
	coalesce(a.per, 0), coalesce(a.override, -1), coalesce(a.override_by, ''),
	coalesce(a.override_note, ''), CASE WHEN a.paused_until > now.at THEN a.paused_until END, coalesce(a.paused_by, ''),
	coalesce(a.paused_note, ''), a.seen_at, coalesce(a.queued, 0), coalesce(a.running, 0), coalesce(a.dead, 0), a.oldest
FROM now CROSS JOIN overdue LEFT JOIN (
	SELECT coalesce(h.name, c.handler) AS name, h.name IS NOT NULL AS registered, h.max_concurrency,
		h.max_per_partition, h.rate, h.per, h.override, h.override_by, h.override_note, h.paused_until, h.paused_by,
		h.paused_note, h.seen_at, c.queued, c.running, c.dead, c.oldest
	FROM {handlers} AS h FULL JOIN counts AS c ON c.handler = h.name
) AS a ON true
ORDER BY a.name COLLATE "C"

-- name: list_histories
-- $1: the number of outcomes, $2: the most failures of a sort. Only the last runs of each handler
-- are read, however many have ended or wait.
SELECT h.name, ended.at, s.at, coalesce(ended.outcomes, ''), dead.n + retried.n + running.n,
	greatest(s.at, least(dead.since, retried.since, running.since)),
	coalesce(running.error, retried.error, dead.error, '')
FROM {handlers} AS h
LEFT JOIN LATERAL (
	SELECT r.finished_at AS at FROM {runs} AS r
	WHERE r.handler = h.name AND r.state = 'succeeded' AND r.finished_at IS NOT NULL ORDER BY r.finished_at DESC LIMIT 1
) AS s ON true
CROSS JOIN LATERAL (
	SELECT max(o.finished_at) AS at, string_agg(left(o.state, 1), '' ORDER BY o.finished_at DESC, o.id DESC) AS outcomes
	FROM (
		(SELECT r.state, r.finished_at, r.id FROM {runs} AS r WHERE r.handler = h.name AND r.state = 'succeeded'
			AND r.finished_at IS NOT NULL ORDER BY r.finished_at DESC LIMIT $1::bigint)
		UNION ALL
		(SELECT r.state, r.finished_at, r.id FROM {runs} AS r WHERE r.handler = h.name AND r.state = 'dead'
			AND r.finished_at IS NOT NULL ORDER BY r.finished_at DESC LIMIT $1::bigint)
		UNION ALL
		(SELECT r.state, r.finished_at, r.id FROM {runs} AS r WHERE r.handler = h.name AND r.state = 'canceled'
			AND r.finished_at IS NOT NULL ORDER BY r.finished_at DESC LIMIT $1::bigint)
		ORDER BY finished_at DESC, id DESC LIMIT $1::bigint
	) AS o
) AS ended
CROSS JOIN LATERAL (
	SELECT count(*) AS n, min(coalesce(r.failing_since, r.finished_at)) AS since,
		(array_agg(r.last_error ORDER BY r.finished_at DESC))[1] AS error
	FROM (
		SELECT * FROM {runs} AS r WHERE r.handler = h.name AND r.state = 'dead' AND r.finished_at IS NOT NULL
			AND r.finished_at > coalesce(s.at, '-infinity') ORDER BY r.finished_at LIMIT $2::bigint
	) AS r
) AS dead
CROSS JOIN LATERAL (
	SELECT count(*) AS n, min(r.failing_since) AS since,
		(array_agg(r.last_error ORDER BY r.claimed_at DESC))[1] AS error
	FROM (
		SELECT * FROM {runs} AS r WHERE r.handler = h.name AND r.state = 'queued' AND r.failing_since IS NOT NULL
		ORDER BY r.failing_since DESC LIMIT $2::bigint
	) AS r WHERE r.claimed_at >= coalesce(s.at, '-infinity')
) AS retried
CROSS JOIN LATERAL ( -- when the attempt before the current one began is not known
	SELECT count(*) AS n, min(r.failing_since) AS since,
		(array_agg(r.last_error ORDER BY r.claimed_at DESC))[1] AS error
	FROM (
		SELECT * FROM {runs} AS r WHERE r.handler = h.name AND r.state = 'running' LIMIT $2::bigint
	) AS r WHERE r.failing_since >= coalesce(s.at, '-infinity')
) AS running

-- name: flow
-- $1: the length of an interval, $2: how long ago the oldest begins, both in µs, $3: how many runs
-- of each part are read at most. The newest runs are those with the highest ids.
SELECT 'in', r.handler, floor(extract(epoch FROM r.created_at) * 1000000 / $1::bigint)::bigint, count(*),
	statement_timestamp()
FROM (SELECT handler, created_at FROM {runs} ORDER BY id DESC LIMIT $3::bigint) AS r
WHERE r.created_at > statement_timestamp() - $2::bigint * interval '1 microsecond' GROUP BY 2, 3
UNION ALL
SELECT 'succeeded', r.handler, floor(extract(epoch FROM r.finished_at) * 1000000 / $1::bigint)::bigint, count(*),
	statement_timestamp()
FROM (SELECT handler, finished_at FROM {runs} WHERE state = 'succeeded' AND finished_at IS NOT NULL
	ORDER BY finished_at DESC LIMIT $3::bigint) AS r
WHERE r.finished_at > statement_timestamp() - $2::bigint * interval '1 microsecond' GROUP BY 2, 3
UNION ALL
SELECT 'dead', r.handler, floor(extract(epoch FROM r.finished_at) * 1000000 / $1::bigint)::bigint, count(*),
	statement_timestamp()
FROM (SELECT handler, finished_at FROM {runs} WHERE state = 'dead' AND finished_at IS NOT NULL
	ORDER BY finished_at DESC LIMIT $3::bigint) AS r
WHERE r.finished_at > statement_timestamp() - $2::bigint * interval '1 microsecond' GROUP BY 2, 3
UNION ALL
SELECT 'canceled', r.handler, floor(extract(epoch FROM r.finished_at) * 1000000 / $1::bigint)::bigint, count(*),
	statement_timestamp()
FROM (SELECT handler, finished_at FROM {runs} WHERE state = 'canceled' AND finished_at IS NOT NULL
	ORDER BY finished_at DESC LIMIT $3::bigint) AS r
WHERE r.finished_at > statement_timestamp() - $2::bigint * interval '1 microsecond' GROUP BY 2, 3
UNION ALL
SELECT 'now', '', 0, 0, statement_timestamp()
