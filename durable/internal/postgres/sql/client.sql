-- name: holds_key
-- Reports whether run r still has its key. The condition is the same as in the index of keys.
CASE r.key_until WHEN 'started' THEN r.state = 'queued' AND r.attempt = 0
	WHEN 'ended' THEN r.state IN ('queued', 'running') ELSE true END

-- name: insert
-- $1: runs as JSON. The statement may run in a transaction of the application, so all names are
-- qualified. Its argument and its answer are texts, which every driver supports. For each run it
-- returns n, the id, and whether the run is new. The id is 0 if another transaction has inserted
-- the key since this statement began, or if the run with the key has just started.
WITH given AS MATERIALIZED (
	SELECT pg_catalog.gen_random_uuid() AS nonce, x.* FROM pg_catalog.json_to_recordset($1::text::json) AS x(n integer,
		handler text, run_at timestamptz, run_in bigint, priority smallint, attempts integer, key text, key_until text,
		key_for bigint, partition text, payload text, by text, note text, traceparent text)
),
-- Takes expired keys from their runs. Postgres checks a row again if another transaction has
-- changed it in the meantime.
expired AS (
	UPDATE {runs} AS r SET key = NULL
	WHERE r.id = ANY (ARRAY(SELECT r.id FROM given AS g JOIN {runs} AS r ON r.handler = g.handler COLLATE "C"
			AND r.key = g.key COLLATE "C" AND {holds_key}
		WHERE r.key_expires_at <= pg_catalog.clock_timestamp()))
		AND r.key IS NOT NULL AND r.key_expires_at <= pg_catalog.clock_timestamp()
	RETURNING 1
),
fresh AS (
	INSERT INTO {runs} (handler, run_at, priority, own_attempts, max_attempts, key, key_until,
		key_expires_at, partition_key, nonce, payload, queued_by, queued_note, traceparent)
	SELECT g.handler,
		coalesce(g.run_at, pg_catalog.clock_timestamp() + g.run_in * interval '1 microsecond'), g.priority, g.attempts,
		g.attempts, g.key, g.key_until, pg_catalog.clock_timestamp() + g.key_for * interval '1 microsecond',
		g.partition, g.nonce, pg_catalog.decode(g.payload, 'base64'), g.by, g.note, nullif(g.traceparent, '')
	FROM given AS g WHERE (SELECT count(*) FROM expired) >= 0 ORDER BY g.n -- forces expired to run first
	ON CONFLICT DO NOTHING
	RETURNING id, handler, key, nonce
)
SELECT pg_catalog.json_agg(pg_catalog.json_build_object('n', g.n, 'id', coalesce(f.id, same.id,
		(SELECT r.id FROM {runs} AS r WHERE r.handler = g.handler COLLATE "C" AND r.key = g.key COLLATE "C"
			AND {holds_key} AND r.key_until <> 'started'),
		-- The row lock makes a start of the run wait for this transaction, so the start sees the
		-- changes made in it.
		(SELECT r.id FROM {runs} AS r WHERE r.handler = g.handler COLLATE "C" AND r.key = g.key COLLATE "C"
			AND {holds_key} AND r.key_until = 'started' FOR KEY SHARE), 0),
	'fresh', f.id IS NOT NULL))::text
FROM given AS g LEFT JOIN fresh AS f ON f.nonce = g.nonce
	LEFT JOIN fresh AS same ON same.handler = g.handler COLLATE "C" AND same.key = g.key COLLATE "C"

-- name: cancel
WITH was AS MATERIALIZED (SELECT r.id, r.state FROM {runs} AS r WHERE r.id = $1::bigint FOR NO KEY UPDATE),
canceled AS (
	UPDATE {runs} AS r SET canceled_by = $2::text, canceled_note = $3::text,
		state = CASE was.state WHEN 'running' THEN 'running' ELSE 'canceled' END,
		finished_at = CASE was.state WHEN 'running' THEN NULL ELSE clock_timestamp() END
	FROM was WHERE r.id = $1::bigint AND was.state IN ('queued', 'running', 'dead')
)
SELECT coalesce((SELECT state FROM was), '')

-- name: requeue
-- A run that is queued again may wait while another run of its schedule waits. The code adds the
-- filter at "which".
WITH old AS MATERIALIZED (
	SELECT r.id FROM {runs} AS r WHERE r.state IN ('dead', 'canceled') AND r.finished_at IS NOT NULL /* which */
	ORDER BY r.id DESC LIMIT $3::bigint
),
queued AS (
	UPDATE {runs} AS r SET state = 'queued', key = CASE r.key_until WHEN '' THEN r.key END,
		backfill = r.schedule IS NOT NULL, run_at = clock_timestamp(),
		uncounted = r.attempt, crashes = 0, failing_since = NULL, canceled_by = NULL, canceled_note = NULL,
		queued_by = $1::text, queued_note = $2::text,
		finished_at = NULL
	WHERE r.id = ANY (ARRAY(SELECT id FROM old)) AND r.state IN ('dead', 'canceled') AND r.finished_at IS NOT NULL
	RETURNING 1
)
SELECT (SELECT count(*) FROM queued), (SELECT CASE WHEN count(*) = $3::bigint THEN min(old.id) END FROM old)

-- name: set_handler
-- $2: the limit (-1: none, NULL: unchanged); $5: the length of the pause in microseconds (NULL:
-- unchanged).
INSERT INTO {handlers} AS h (name, override, override_by, override_note, paused_until, paused_by, paused_note)
SELECT $1::text, nullif($2::integer, -1), CASE WHEN $2::integer IS NULL THEN '' ELSE $3::text END,
	CASE WHEN $2::integer IS NULL THEN '' ELSE $4::text END, p.until, CASE WHEN p.until IS NOT NULL THEN $3::text END,
	CASE WHEN p.until IS NOT NULL THEN $4::text END
FROM (SELECT CASE WHEN $5::bigint > 0 THEN clock_timestamp() + $5::bigint * interval '1 microsecond' END AS until) AS p
ON CONFLICT (name) DO UPDATE SET
	override = CASE WHEN $2::integer IS NULL THEN h.override ELSE excluded.override END,
	override_by = CASE WHEN $2::integer IS NULL THEN h.override_by ELSE excluded.override_by END,
	override_note = CASE WHEN $2::integer IS NULL THEN h.override_note ELSE excluded.override_note END,
	paused_until = CASE WHEN $5::bigint IS NULL THEN h.paused_until ELSE excluded.paused_until END,
	paused_by = CASE WHEN $5::bigint IS NULL THEN h.paused_by ELSE excluded.paused_by END,
	paused_note = CASE WHEN $5::bigint IS NULL THEN h.paused_note ELSE excluded.paused_note END

-- name: set_schedule
-- $2: the length of the pause in microseconds (0: resume, NULL: unchanged). The columns of a pause
-- that is over are kept: they show which ticks came due in it, so that those are not caught up.
INSERT INTO {schedules} AS s (name, paused_at, paused_until, paused_by, paused_note)
SELECT $1::text, now.at, now.at + $2::bigint * interval '1 microsecond', $3::text, $4::text
FROM (SELECT clock_timestamp() AS at) AS now
WHERE $2::bigint IS NOT NULL
ON CONFLICT (name) DO UPDATE SET
	paused_at = CASE WHEN $2::bigint = 0 OR s.paused_until > excluded.paused_at THEN s.paused_at
		ELSE excluded.paused_at END,
	paused_until = CASE WHEN $2::bigint > 0 OR s.paused_until > excluded.paused_until THEN excluded.paused_until
		ELSE s.paused_until END,
	paused_by = excluded.paused_by, paused_note = excluded.paused_note

-- name: forget_schedule
DELETE FROM {schedules} AS s WHERE s.name = $1::text RETURNING true
