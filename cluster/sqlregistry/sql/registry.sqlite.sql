-- Registry of package cluster on SQLite. now is in microseconds with a precision of a millisecond,
-- and constant within a statement. julianday is used because it is the oldest function with
-- milliseconds. round removes its floating-point error.

-- name: schema
-- The registry of tickslot: running hosts, held leases, and recent events and runs.
--
-- sort is 'host', 'lease', 'event', 'run', 'timer', 'fine' or 'coarse'. For a lease, the columns up
-- to released_at hold what the holder last reported. For the last three sorts, the package
-- documentation explains each column. Times are microseconds since 1970. Long IDs are cut and end
-- with a hash.
CREATE TABLE IF NOT EXISTS {table} (
	sort        TEXT NOT NULL,
	id          TEXT NOT NULL,                 -- lease: the name, or slot:name for a semaphore
	lock_name   TEXT NOT NULL,                 -- run: the timer
	node_id     TEXT NOT NULL,                 -- machine/pid
	machine     TEXT NOT NULL,
	pid         INTEGER NOT NULL,
	holder_id   TEXT NOT NULL,                 -- distinguishes processes with the same node_id
	kind        TEXT NOT NULL,                 -- event: what happened; run: its outcome
	slot        INTEGER NOT NULL,
	slots       INTEGER NOT NULL,              -- 0 for a mutex
	fence       INTEGER NOT NULL,
	grant_id    TEXT NOT NULL,                 -- distinguishes the grants of one holder
	acquired_at INTEGER,                       -- host: when it started
	renewed_at  INTEGER,                       -- host: when it was last seen
	expires_at  INTEGER,
	released_at INTEGER,                       -- host: when it shut down cleanly
	happened_at INTEGER,                       -- event: when it happened; run: when it ended; otherwise NULL
	ttl         INTEGER,                       -- host, in microseconds
	up_for      INTEGER,                       -- host: uptime when last seen, in microseconds
	data        TEXT NOT NULL,                 -- the other fields, as JSON
	detail      TEXT,                          -- host, as JSON
	PRIMARY KEY (sort, id)
) STRICT;

-- name: indexes
-- Finds the newest events and runs.
CREATE INDEX IF NOT EXISTS {recent_in} ON {name} (sort, happened_at, id) WHERE happened_at IS NOT NULL;

-- Finds the newest runs of a timer.
CREATE INDEX IF NOT EXISTS {named_in} ON {name} (sort, lock_name, happened_at, id) WHERE happened_at IS NOT NULL;

-- name: now
(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)

-- name: write
-- rows: as JSON, with their times as ages in microseconds.
INSERT INTO {table} AS t (sort, id, lock_name, node_id, machine, pid, holder_id, kind, slot, slots, fence, grant_id,
	acquired_at, renewed_at, expires_at, released_at, happened_at, ttl, up_for, data, detail)
SELECT value ->> 'sort', value ->> 'id', value ->> 'lock_name', value ->> 'node_id', value ->> 'machine',
	value ->> 'pid', value ->> 'holder_id', value ->> 'kind', value ->> 'slot', value ->> 'slots',
	CASE WHEN value ->> 'sort' = 'host' AND NOT EXISTS (SELECT 1 FROM {table} AS h
		WHERE h.sort = 'host' AND h.id = value ->> 'id') THEN 0 ELSE value ->> 'fence' END,
	value ->> 'grant_id', {now} - (value ->> 'acquired'), {now} - (value ->> 'renewed'), {now} - (value ->> 'expires'),
	{now} - (value ->> 'released'), {now} - (value ->> 'happened'), value ->> 'ttl', value ->> 'up_for',
	value ->> 'data', value ->> 'detail'
FROM json_each({rows})
WHERE value ->> 'sort' IN ('lease', 'event', 'run') OR value ->> 'sort' = 'host' AND (value ->> 'detail' IS NOT NULL
	OR EXISTS (SELECT 1 FROM {table} AS h WHERE h.sort = 'host' AND h.id = value ->> 'id'))
ON CONFLICT (sort, id) DO UPDATE SET
	lock_name = excluded.lock_name, node_id = excluded.node_id, machine = excluded.machine, pid = excluded.pid,
	holder_id = excluded.holder_id, kind = excluded.kind, slot = excluded.slot, slots = excluded.slots,
	-- For a host: the number of the last counted batch.
	fence = CASE WHEN t.sort <> 'host' THEN excluded.fence ELSE max(t.fence, excluded.fence) END,
	grant_id = excluded.grant_id, acquired_at = excluded.acquired_at,
	renewed_at = excluded.renewed_at, expires_at = excluded.expires_at, released_at = excluded.released_at,
	ttl = excluded.ttl, up_for = excluded.up_for, data = excluded.data, detail = coalesce(excluded.detail, t.detail)
WHERE CASE t.sort
	WHEN 'host' THEN excluded.up_for >= t.up_for
	WHEN 'lease' THEN CASE
		WHEN t.machine = excluded.machine AND t.pid = excluded.pid AND t.holder_id = excluded.holder_id
			AND t.grant_id = excluded.grant_id THEN t.released_at IS NULL
		WHEN t.fence <> 0 AND excluded.fence <> 0 THEN excluded.fence > t.fence
		-- The record is live and the row is over: the row may be a late record of an earlier
		-- holder.
		WHEN excluded.released_at IS NULL AND excluded.expires_at > {now}
			AND (t.released_at IS NOT NULL OR t.expires_at <= {now}) THEN 1
		ELSE excluded.acquired_at > t.acquired_at END
	ELSE 0 END -- events and runs are written only once

-- name: counts
-- Whether the batch is counted. Executed before the batch is written.
SELECT EXISTS (SELECT 1 FROM {table} WHERE sort = 'host' AND id = {host_id} AND fence < {number} AND up_for <= {up_for})

-- name: last_success
coalesce(max(t.released_at, excluded.released_at), t.released_at, excluded.released_at, -1)

-- name: old_since
-- When the first counted failure of the row ended, or NULL if none counts: see cluster.Merge.
CASE WHEN t.up_for = 0 THEN NULL WHEN t.acquired_at > {last_success} THEN t.acquired_at
	WHEN t.expires_at > {last_success} THEN t.expires_at END

-- name: new_since
CASE WHEN excluded.up_for = 0 THEN NULL WHEN excluded.acquired_at > {last_success} THEN excluded.acquired_at
	WHEN excluded.expires_at > {last_success} THEN excluded.expires_at END

-- name: width
((value ->> 'slots') * 60000000)

-- name: nth
-- Number of the bucket since 1970. Its width (slots) is in minutes.
(({now} - (value ->> 'happened')) / {width})

-- name: count
INSERT INTO {table} AS t (sort, id, lock_name, node_id, machine, pid, holder_id, kind, slot, slots, fence, grant_id,
	acquired_at, renewed_at, expires_at, released_at, happened_at, ttl, up_for, data)
SELECT value ->> 'sort', (value ->> 'id') || CASE WHEN value ->> 'sort' = 'timer' THEN '' ELSE ':' || {nth} END,
	value ->> 'lock_name', value ->> 'node_id', value ->> 'machine',
	value ->> 'pid', value ->> 'holder_id', value ->> 'kind', value ->> 'slot', value ->> 'slots', value ->> 'fence',
	value ->> 'grant_id', {now} - (value ->> 'acquired'), {now} - (value ->> 'renewed'), {now} - (value ->> 'expires'),
	{now} - (value ->> 'released'), {nth} * {width}, value ->> 'ttl', value ->> 'up_for', value ->> 'data'
FROM json_each({rows})
WHERE value ->> 'sort' IN ('timer', 'fine', 'coarse')
ON CONFLICT (sort, id) DO UPDATE SET
	node_id = CASE WHEN excluded.renewed_at >= t.renewed_at THEN excluded.node_id ELSE t.node_id END,
	machine = CASE WHEN excluded.renewed_at >= t.renewed_at THEN excluded.machine ELSE t.machine END,
	pid = CASE WHEN t.sort <> 'timer' THEN t.pid + excluded.pid
		WHEN excluded.renewed_at >= t.renewed_at THEN excluded.pid ELSE t.pid END,
	holder_id = CASE WHEN excluded.renewed_at >= t.renewed_at THEN excluded.holder_id ELSE t.holder_id END,
	kind = CASE WHEN excluded.renewed_at >= t.renewed_at THEN excluded.kind ELSE t.kind END,
	slot = CASE WHEN excluded.renewed_at >= t.renewed_at THEN excluded.slot ELSE t.slot END,
	fence = CASE WHEN t.sort <> 'timer' THEN t.fence + excluded.fence
		WHEN excluded.renewed_at >= t.renewed_at THEN excluded.fence ELSE t.fence END,
	grant_id = substr(t.grant_id || excluded.grant_id, -{max_outcomes}),
	acquired_at = min(coalesce({old_since}, {new_since}), coalesce({new_since}, {old_since})),
	renewed_at = max(t.renewed_at, excluded.renewed_at),
	expires_at = nullif(max(CASE WHEN {old_since} IS NULL THEN -1 ELSE t.expires_at END,
		CASE WHEN {new_since} IS NULL THEN -1 ELSE excluded.expires_at END), -1),
	released_at = nullif({last_success}, -1),
	ttl = max(t.ttl, excluded.ttl),
	up_for = CASE WHEN t.sort <> 'timer' THEN t.up_for + excluded.up_for
		ELSE CASE {old_since} WHEN t.acquired_at THEN t.up_for WHEN t.expires_at THEN 1 ELSE 0 END
			+ CASE {new_since} WHEN excluded.acquired_at THEN excluded.up_for WHEN excluded.expires_at THEN 1 ELSE 0 END
		END,
	data = CASE WHEN excluded.renewed_at >= t.renewed_at THEN excluded.data ELSE t.data END

-- name: known
SELECT EXISTS (SELECT 1 FROM {table} WHERE sort = 'host' AND id = {host_id}), {now}

-- name: columns
SELECT t.sort, t.id, t.lock_name, t.machine, t.pid, t.holder_id, t.kind, t.slot, t.slots, t.fence, t.grant_id,
	{now} - t.acquired_at, {now} - t.renewed_at, {now} - t.expires_at, {now} - t.released_at, {now} - t.happened_at,
	t.ttl, t.up_for, t.data, t.detail

-- name: read
{columns}
FROM (
	SELECT * FROM {table} WHERE sort IN ('host', 'lease')
	UNION ALL
	SELECT * FROM (SELECT * FROM {table} WHERE sort = 'event' AND happened_at IS NOT NULL
		ORDER BY happened_at DESC, id DESC LIMIT {events})
	UNION ALL
	SELECT * FROM (SELECT * FROM {table} WHERE sort = 'run' AND happened_at IS NOT NULL
		ORDER BY happened_at DESC, id DESC LIMIT {runs})
	UNION ALL
	SELECT * FROM (SELECT * FROM {table} WHERE sort = 'timer' ORDER BY up_for > 0 DESC, renewed_at DESC LIMIT {timers})
) AS t

-- name: timer_runs
{columns}
FROM {table} AS t WHERE t.sort = 'run' AND t.lock_name = {timer} AND t.happened_at IS NOT NULL
ORDER BY t.happened_at DESC, t.id DESC LIMIT {runs_per_timer}

-- name: buckets
{columns}
FROM {table} AS t WHERE t.sort IN ('fine', 'coarse') AND t.lock_name = {timer} AND t.happened_at IS NOT NULL

-- name: sweep
DELETE FROM {table} WHERE (sort, id) IN (
	SELECT * FROM (SELECT sort, id FROM {table} WHERE sort = 'host' AND renewed_at < {now} - max({hosts}, 3 * ttl)
		LIMIT {limit})
	UNION ALL
	SELECT * FROM (SELECT sort, id FROM {table} WHERE sort = 'lease'
		AND max(renewed_at, CASE WHEN released_at IS NULL THEN expires_at ELSE renewed_at END) < {now} - {leases}
		LIMIT {limit})
	UNION ALL
	SELECT * FROM (SELECT sort, id FROM (SELECT sort, id, happened_at,
			row_number() OVER (ORDER BY happened_at DESC, id DESC) AS n
			FROM {table} WHERE sort = 'event' AND happened_at IS NOT NULL)
		WHERE n > {max_events} OR happened_at < {now} - {events} LIMIT {limit})
	UNION ALL
	SELECT * FROM (SELECT sort, id FROM (
			SELECT sort, id FROM {table} WHERE sort = 'run' AND happened_at < {now} - {runs}
			UNION
			SELECT sort, id FROM (SELECT sort, id,
				row_number() OVER (PARTITION BY lock_name ORDER BY happened_at DESC, id DESC) AS n
				FROM {table} WHERE sort = 'run' AND happened_at IS NOT NULL AND lock_name IN (
					SELECT lock_name FROM {table} WHERE sort = 'run' AND happened_at IS NOT NULL
					GROUP BY lock_name HAVING COUNT(*) > {runs_per_timer})
			) WHERE n > {runs_per_timer}
		) LIMIT {limit})
	UNION ALL
	SELECT * FROM (SELECT sort, id FROM {table} WHERE sort = 'timer' AND renewed_at < {now} - {runs} LIMIT {limit})
	UNION ALL
	SELECT * FROM (SELECT sort, id FROM {table} WHERE sort = 'fine' AND happened_at < {now} - {fine} LIMIT {limit})
	UNION ALL
	SELECT * FROM (SELECT sort, id FROM {table} WHERE sort = 'coarse' AND happened_at < {now} - {coarse} LIMIT {limit}))
