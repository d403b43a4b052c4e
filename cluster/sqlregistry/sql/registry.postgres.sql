-- Registry of package cluster on Postgres.

-- name: schema
-- The registry of tickslot: running hosts, held leases, and recent events and runs.
--
-- sort is 'host', 'lease', 'event', 'run', 'timer', 'fine' or 'coarse'. For a lease, the columns up
-- to released_at hold what the holder last reported. For the last three sorts, the package
-- documentation explains each column. Text is stored unchanged. Long IDs are cut and end with a
-- hash.
CREATE TABLE IF NOT EXISTS {table} (
	sort        text COLLATE "C" NOT NULL,
	id          text COLLATE "C" NOT NULL,     -- lease: the name, or slot:name for a semaphore
	lock_name   text COLLATE "C" NOT NULL,     -- run: the timer
	node_id     text COLLATE "C" NOT NULL,     -- machine/pid
	machine     text COLLATE "C" NOT NULL,
	pid         bigint NOT NULL,
	holder_id   text COLLATE "C" NOT NULL,     -- distinguishes processes with the same node_id
	kind        text COLLATE "C" NOT NULL,     -- event: what happened; run: its outcome
	slot        integer NOT NULL,
	slots       integer NOT NULL,              -- 0 for a mutex
	fence       bigint NOT NULL,
	grant_id    text COLLATE "C" NOT NULL,     -- distinguishes the grants of one holder
	acquired_at timestamptz,                   -- host: when it started
	renewed_at  timestamptz,                   -- host: when it was last seen
	expires_at  timestamptz,
	released_at timestamptz,                   -- host: when it shut down cleanly
	happened_at timestamptz,                   -- event: when it happened; run: when it ended; otherwise NULL
	ttl         bigint,                        -- host, in microseconds
	up_for      bigint,                        -- host: uptime when last seen, in microseconds
	data        text COLLATE "C" NOT NULL,     -- the other fields, as JSON
	detail      text COLLATE "C",              -- host, as JSON
	PRIMARY KEY (sort, id)
) WITH (fillfactor = 70); -- room for new versions of frequently updated rows

-- name: indexes
-- Finds the newest events and runs. Later writes to a row change no indexed column, so they update
-- no index (HOT).
CREATE INDEX IF NOT EXISTS {recent} ON {table} (sort, happened_at, id) WHERE happened_at IS NOT NULL;

-- Finds the newest runs of a timer.
CREATE INDEX IF NOT EXISTS {named} ON {table} (sort, lock_name, happened_at, id) WHERE happened_at IS NOT NULL;

-- name: now
pg_catalog.statement_timestamp()

-- name: last_success
greatest(t.released_at, excluded.released_at)

-- name: old_since
-- When the first counted failure of the row ended, or NULL if none counts: see cluster.Merge.
CASE WHEN t.up_for = 0 THEN NULL WHEN {last_success} IS NULL OR t.acquired_at > {last_success} THEN t.acquired_at
	WHEN t.expires_at > {last_success} THEN t.expires_at END

-- name: new_since
CASE WHEN excluded.up_for = 0 THEN NULL
	WHEN {last_success} IS NULL OR excluded.acquired_at > {last_success} THEN excluded.acquired_at
	WHEN excluded.expires_at > {last_success} THEN excluded.expires_at END

-- name: nth
-- Number of the bucket since 1970. Its width (slots) is in minutes.
floor(extract(epoch FROM pg_catalog.statement_timestamp() - x.happened * interval '1 microsecond')
	/ (60 * x.slots))::bigint

-- name: write
-- rows: as JSON, in the order of the primary key, with their times as ages in microseconds.
-- host_id: the host whose heartbeat is written.
WITH x AS (
	SELECT * FROM pg_catalog.json_to_recordset({rows}::json) AS r(sort text, id text, lock_name text, node_id text,
		machine text, pid bigint, holder_id text, kind text, slot integer, slots integer, fence bigint, grant_id text,
		acquired bigint, renewed bigint, expires bigint, released bigint, happened bigint, ttl bigint, up_for bigint,
		data text, detail text)
), written AS (
	INSERT INTO {table} AS t (sort, id, lock_name, node_id, machine, pid, holder_id, kind, slot, slots, fence, grant_id,
		acquired_at, renewed_at, expires_at, released_at, happened_at, ttl, up_for, data, detail)
	SELECT x.sort, x.id, x.lock_name, x.node_id, x.machine, x.pid, x.holder_id, x.kind, x.slot, x.slots,
		CASE WHEN x.sort = 'host' AND NOT EXISTS (SELECT FROM {table} AS h WHERE h.sort = 'host' AND h.id = x.id)
			THEN 0 ELSE x.fence END, -- a batch without a host row is not counted
		x.grant_id,
		pg_catalog.statement_timestamp() - x.acquired * interval '1 microsecond',
		pg_catalog.statement_timestamp() - x.renewed * interval '1 microsecond',
		pg_catalog.statement_timestamp() - x.expires * interval '1 microsecond',
		pg_catalog.statement_timestamp() - x.released * interval '1 microsecond',
		pg_catalog.statement_timestamp() - x.happened * interval '1 microsecond',
		x.ttl, x.up_for, x.data, x.detail
	FROM x
	WHERE x.sort IN ('lease', 'event', 'run') OR x.sort = 'host' AND (x.detail IS NOT NULL
		OR EXISTS (SELECT FROM {table} AS h WHERE h.sort = 'host' AND h.id = {host_id}))
	ON CONFLICT (sort, id) DO UPDATE SET
		lock_name = excluded.lock_name, node_id = excluded.node_id, machine = excluded.machine, pid = excluded.pid,
		holder_id = excluded.holder_id, kind = excluded.kind, slot = excluded.slot,
		-- For a host: 1 if the batch is counted. fence is the number of the batch.
		slots = CASE WHEN t.sort <> 'host' THEN excluded.slots WHEN excluded.fence > t.fence THEN 1 ELSE 0 END,
		fence = CASE WHEN t.sort <> 'host' THEN excluded.fence ELSE greatest(t.fence, excluded.fence) END,
		grant_id = excluded.grant_id, acquired_at = excluded.acquired_at,
		renewed_at = excluded.renewed_at, expires_at = excluded.expires_at, released_at = excluded.released_at,
		ttl = excluded.ttl, up_for = excluded.up_for, data = excluded.data,
		detail = coalesce(excluded.detail, t.detail)
	WHERE CASE t.sort
		WHEN 'host' THEN excluded.up_for >= t.up_for
		WHEN 'lease' THEN CASE
			WHEN t.machine = excluded.machine AND t.pid = excluded.pid AND t.holder_id = excluded.holder_id
				AND t.grant_id = excluded.grant_id THEN t.released_at IS NULL
			WHEN t.fence <> 0 AND excluded.fence <> 0 THEN excluded.fence > t.fence
			-- The record is live and the row is over: the row may be a late record of an earlier
			-- holder.
			WHEN excluded.released_at IS NULL AND excluded.expires_at > pg_catalog.statement_timestamp()
				AND (t.released_at IS NOT NULL OR t.expires_at <= pg_catalog.statement_timestamp()) THEN true
			ELSE excluded.acquired_at > t.acquired_at END
		ELSE false END -- events and runs are written only once
	RETURNING t.sort, t.detail IS NOT NULL AS known, t.slots AS counts
), counted AS (
	INSERT INTO {table} AS t (sort, id, lock_name, node_id, machine, pid, holder_id, kind, slot, slots, fence, grant_id,
		acquired_at, renewed_at, expires_at, released_at, happened_at, ttl, up_for, data)
	SELECT x.sort, CASE WHEN x.sort = 'timer' THEN x.id ELSE x.id || ':' || {nth} END,
		x.lock_name, x.node_id, x.machine, x.pid, x.holder_id, x.kind, x.slot, x.slots, x.fence, x.grant_id,
		pg_catalog.statement_timestamp() - x.acquired * interval '1 microsecond',
		pg_catalog.statement_timestamp() - x.renewed * interval '1 microsecond',
		pg_catalog.statement_timestamp() - x.expires * interval '1 microsecond',
		pg_catalog.statement_timestamp() - x.released * interval '1 microsecond',
		CASE WHEN x.sort <> 'timer' THEN pg_catalog.to_timestamp({nth} * 60 * x.slots) END,
		x.ttl, x.up_for, x.data
	FROM x
	-- By now the statement has locked the row of the host and sees the last batch in it.
	WHERE x.sort IN ('timer', 'fine', 'coarse')
		AND EXISTS (SELECT FROM written AS w WHERE w.sort = 'host' AND w.counts = 1)
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
		grant_id = right(t.grant_id || excluded.grant_id, {max_outcomes}),
		acquired_at = least({old_since}, {new_since}),
		renewed_at = greatest(t.renewed_at, excluded.renewed_at),
		expires_at = greatest(CASE WHEN {old_since} IS NOT NULL THEN t.expires_at END,
			CASE WHEN {new_since} IS NOT NULL THEN excluded.expires_at END),
		released_at = {last_success},
		ttl = greatest(t.ttl, excluded.ttl),
		up_for = CASE WHEN t.sort <> 'timer' THEN t.up_for + excluded.up_for
			ELSE CASE {old_since} WHEN t.acquired_at THEN t.up_for WHEN t.expires_at THEN 1 ELSE 0 END
				+ CASE {new_since} WHEN excluded.acquired_at THEN excluded.up_for WHEN excluded.expires_at THEN 1
					ELSE 0 END
			END,
		data = CASE WHEN excluded.renewed_at >= t.renewed_at THEN excluded.data ELSE t.data END
)
-- A heartbeat that a later one has overtaken is missing from the written rows.
SELECT coalesce((SELECT w.known FROM written AS w WHERE w.sort = 'host'),
		EXISTS (SELECT FROM {table} AS h WHERE h.sort = 'host' AND h.id = {host_id} AND h.detail IS NOT NULL)),
	(extract(epoch FROM pg_catalog.statement_timestamp()) * 1000000)::bigint

-- name: columns
SELECT t.sort, t.id, t.lock_name, t.machine, t.pid, t.holder_id, t.kind, t.slot, t.slots, t.fence, t.grant_id,
	(extract(epoch FROM pg_catalog.statement_timestamp() - t.acquired_at) * 1000000)::bigint,
	(extract(epoch FROM pg_catalog.statement_timestamp() - t.renewed_at) * 1000000)::bigint,
	(extract(epoch FROM pg_catalog.statement_timestamp() - t.expires_at) * 1000000)::bigint,
	(extract(epoch FROM pg_catalog.statement_timestamp() - t.released_at) * 1000000)::bigint,
	(extract(epoch FROM pg_catalog.statement_timestamp() - t.happened_at) * 1000000)::bigint,
	t.ttl, t.up_for, t.data, t.detail

-- name: read
{columns}
FROM (
	SELECT * FROM {table} WHERE sort = 'host' AND detail IS NOT NULL OR sort = 'lease'
	UNION ALL
	SELECT * FROM (SELECT * FROM {table} WHERE sort = 'event' AND happened_at IS NOT NULL
		ORDER BY happened_at DESC, id DESC LIMIT {events}) AS e
	UNION ALL
	SELECT * FROM (SELECT * FROM {table} WHERE sort = 'run' AND happened_at IS NOT NULL
		ORDER BY happened_at DESC, id DESC LIMIT {runs}) AS r
	UNION ALL
	SELECT * FROM (SELECT * FROM {table} WHERE sort = 'timer'
		ORDER BY up_for > 0 DESC, renewed_at DESC LIMIT {timers}) AS f
) AS t

-- name: timer_runs
{columns}
FROM {table} AS t WHERE t.sort = 'run' AND t.lock_name = {timer} AND t.happened_at IS NOT NULL
ORDER BY t.happened_at DESC, t.id DESC LIMIT {runs_per_timer}

-- name: buckets
{columns}
FROM {table} AS t WHERE t.sort IN ('fine', 'coarse') AND t.lock_name = {timer} AND t.happened_at IS NOT NULL

-- name: host_is_old
o.renewed_at < {now} - greatest({hosts}, 3 * o.ttl) * interval '1 microsecond'

-- name: lease_is_old
greatest(o.renewed_at, CASE WHEN o.released_at IS NULL THEN o.expires_at END)
	< {now} - {leases} * interval '1 microsecond'

-- name: timer_is_old
o.renewed_at < {now} - {runs} * interval '1 microsecond'

-- name: sweep
-- The statement skips rows that another session has locked. It checks rows again that were written
-- since it began, and keeps them.
DELETE FROM {table} AS t USING (
	SELECT o.sort, o.id FROM {table} AS o
	WHERE (o.sort, o.id) IN (
		SELECT * FROM (SELECT sort, id FROM {table} AS o WHERE sort = 'host' AND {host_is_old} LIMIT {limit}) AS h
		UNION ALL
		SELECT * FROM (SELECT sort, id FROM {table} AS o WHERE sort = 'lease' AND {lease_is_old} LIMIT {limit}) AS l
		UNION ALL
		SELECT * FROM (SELECT sort, id FROM (SELECT sort, id, happened_at,
				row_number() OVER (ORDER BY happened_at DESC, id DESC) AS n
				FROM {table} WHERE sort = 'event' AND happened_at IS NOT NULL) AS o
			WHERE n > {max_events} OR happened_at < {now} - {events} * interval '1 microsecond' LIMIT {limit}) AS e
		UNION ALL
		SELECT * FROM (SELECT sort, id FROM (
				SELECT sort, id FROM {table}
				WHERE sort = 'run' AND happened_at < {now} - {runs} * interval '1 microsecond'
				UNION
				SELECT sort, id FROM (SELECT sort, id,
					row_number() OVER (PARTITION BY lock_name ORDER BY happened_at DESC, id DESC) AS n
					FROM {table} WHERE sort = 'run' AND happened_at IS NOT NULL AND lock_name IN (
						SELECT lock_name FROM {table} WHERE sort = 'run' AND happened_at IS NOT NULL
						GROUP BY lock_name HAVING COUNT(*) > {runs_per_timer})
				) AS x WHERE n > {runs_per_timer}
			) AS y LIMIT {limit}) AS r
		UNION ALL
		SELECT * FROM (SELECT sort, id FROM {table} AS o WHERE sort = 'timer' AND {timer_is_old} LIMIT {limit}) AS f
		UNION ALL
		SELECT * FROM (SELECT sort, id FROM {table}
			WHERE sort = 'fine' AND happened_at < {now} - {fine} * interval '1 microsecond' LIMIT {limit}) AS b
		UNION ALL
		SELECT * FROM (SELECT sort, id FROM {table}
			WHERE sort = 'coarse' AND happened_at < {now} - {coarse} * interval '1 microsecond' LIMIT {limit}) AS c)
		AND CASE o.sort WHEN 'host' THEN {host_is_old} WHEN 'lease' THEN {lease_is_old}
			WHEN 'timer' THEN {timer_is_old} ELSE true END
	ORDER BY o.sort, o.id FOR UPDATE SKIP LOCKED
) AS old WHERE t.sort = old.sort AND t.id = old.id
