-- Registry of package cluster on SQL Server. These statements have never been run against a server.
-- DATEADD takes an int, so seconds and microseconds are subtracted separately.

-- name: schema
-- The registry of tickslot: running hosts, held leases, and recent events and runs.
--
-- sort is 'host', 'lease', 'event', 'run', 'timer', 'fine' or 'coarse'. For a lease, the columns up
-- to released_at hold what the holder last reported. For the last three sorts, the package
-- documentation explains each column. Times are UTC. Names and IDs are UTF-8 in binary, because
-- every collation treats 'job' and 'job ' as equal, and most treat 'job' and 'JOB' as equal. Long
-- IDs are cut and end with a hash.
IF OBJECT_ID({table_text}, N'U') IS NULL
CREATE TABLE {table} (
	sort        varbinary(8) NOT NULL,
	id          varbinary(255) NOT NULL,       -- lease: the name, or slot:name for a semaphore
	lock_name   varbinary(512) NOT NULL,       -- run: the timer
	node_id     nvarchar(300) NOT NULL,        -- machine/pid
	machine     nvarchar(255) NOT NULL,
	pid         bigint NOT NULL,
	holder_id   nvarchar(255) NOT NULL,        -- distinguishes processes with the same node_id
	kind        nvarchar(255) NOT NULL,        -- event: what happened; run: its outcome
	slot        int NOT NULL,
	slots       int NOT NULL,                  -- 0 for a mutex
	fence       bigint NOT NULL,
	grant_id    nvarchar(255) NOT NULL,        -- distinguishes the grants of one holder
	acquired_at datetime2(6) NULL,             -- host: when it started
	renewed_at  datetime2(6) NULL,             -- host: when it was last seen
	expires_at  datetime2(6) NULL,
	released_at datetime2(6) NULL,             -- host: when it shut down cleanly
	happened_at datetime2(6) NULL,             -- event: when it happened; run: when it ended; otherwise NULL
	ttl         bigint NULL,                   -- host, in microseconds
	up_for      bigint NULL,                   -- host: uptime when last seen, in microseconds
	data        nvarchar(max) NOT NULL,        -- the other fields, as JSON
	detail      nvarchar(max) NULL,            -- host, as JSON
	PRIMARY KEY CLUSTERED (sort, id),
	INDEX recent NONCLUSTERED (sort, happened_at, id),         -- finds the newest events and runs
	INDEX named NONCLUSTERED (sort, lock_name, happened_at, id) -- finds the newest runs of a timer
)

-- name: host
0x686f7374

-- name: lease
0x6c65617365

-- name: event
0x6576656e74

-- name: run
0x72756e

-- name: timer_sort
0x74696d6572

-- name: fine_sort
0x66696e65

-- name: coarse_sort
0x636f61727365

-- name: minutes
-- Start of a bucket in minutes since 1970, which fits into an int.
(DATEDIFF_BIG(MICROSECOND, '1970-01-01', happened_at) / (60000000 * NULLIF(CAST(slots AS bigint), 0)) * slots)

-- name: last_success
CASE WHEN t.released_at IS NULL OR x.released_at > t.released_at THEN x.released_at ELSE t.released_at END

-- name: old_since
-- When the first counted failure of the row ended, or NULL if none counts: see cluster.Merge.
CASE WHEN t.up_for = 0 THEN NULL WHEN {last_success} IS NULL OR t.acquired_at > {last_success} THEN t.acquired_at
	WHEN t.expires_at > {last_success} THEN t.expires_at END

-- name: new_since
CASE WHEN x.up_for = 0 THEN NULL WHEN {last_success} IS NULL OR x.acquired_at > {last_success} THEN x.acquired_at
	WHEN x.expires_at > {last_success} THEN x.expires_at END

-- name: rows_in
SELECT CONVERT(varbinary(8), sort, 2) AS sort, CONVERT(varbinary(255), id, 2) AS id,
	CONVERT(varbinary(512), lock_name, 2) AS lock_name, node_id, machine, pid, holder_id, kind, slot, slots, fence,
	grant_id,
	DATEADD(microsecond, -(acquired % 1000000), DATEADD(second, -(acquired / 1000000), @now)) AS acquired_at,
	DATEADD(microsecond, -(renewed % 1000000), DATEADD(second, -(renewed / 1000000), @now)) AS renewed_at,
	DATEADD(microsecond, -(expires % 1000000), DATEADD(second, -(expires / 1000000), @now)) AS expires_at,
	DATEADD(microsecond, -(released % 1000000), DATEADD(second, -(released / 1000000), @now)) AS released_at,
	DATEADD(microsecond, -(happened % 1000000), DATEADD(second, -(happened / 1000000), @now)) AS happened_at,
	ttl, up_for, data, detail
FROM OPENJSON(@rows) WITH (sort varchar(16), id varchar(510), lock_name varchar(1024), node_id nvarchar(300),
	machine nvarchar(255), pid bigint, holder_id nvarchar(255), kind nvarchar(255), slot int, slots int,
	fence bigint, grant_id nvarchar(255), acquired bigint, renewed bigint, expires bigint, released bigint,
	happened bigint, ttl bigint, up_for bigint, data nvarchar(max), detail nvarchar(max))

-- name: begin
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT {wait_ms};
DECLARE @now datetime2(6) = SYSUTCDATETIME(), @rows nvarchar(max) = {rows}, @counts bit = 0;

-- name: answer
SELECT CASE WHEN EXISTS (SELECT 1 FROM {table} WHERE sort = {host} AND id = {host_id}) THEN 1 ELSE 0 END,
	DATEDIFF_BIG(MICROSECOND, '1970-01-01', @now);

-- name: write
-- rows: as JSON, with their times as ages in microseconds, and names and IDs in hex. host_id: the
-- host whose heartbeat is written.
{begin}
{merge}
{answer}

-- name: write_counted
-- The row of the host is locked, so that a batch that arrives twice waits for itself and is counted
-- once.
{begin}
BEGIN TRANSACTION;
SELECT @counts = 1 FROM {table} WITH (UPDLOCK, HOLDLOCK)
WHERE sort = {host} AND id = {host_id} AND fence < {number} AND up_for <= {up_for};
{merge}
IF @counts = 1 {merge_counted}
COMMIT TRANSACTION;
{answer}

-- name: merge
MERGE {table} WITH (HOLDLOCK) AS t USING (
	SELECT * FROM ({rows_in}) AS r WHERE sort NOT IN ({timer_sort}, {fine_sort}, {coarse_sort})
) AS x ON t.sort = x.sort AND t.id = x.id
WHEN MATCHED AND (
	t.sort = {host} AND x.up_for >= t.up_for
	OR t.sort = {lease} AND 1 = CASE
		WHEN CONVERT(varbinary(510), t.machine) = CONVERT(varbinary(510), x.machine) AND t.pid = x.pid
			AND CONVERT(varbinary(510), t.holder_id) = CONVERT(varbinary(510), x.holder_id)
			AND CONVERT(varbinary(510), t.grant_id) = CONVERT(varbinary(510), x.grant_id)
			THEN CASE WHEN t.released_at IS NULL THEN 1 ELSE 0 END
		WHEN t.fence <> 0 AND x.fence <> 0 THEN CASE WHEN x.fence > t.fence THEN 1 ELSE 0 END
		-- The record is live and the row is over: the row may be a late record of an earlier
		-- holder.
		WHEN x.released_at IS NULL AND x.expires_at > @now
			AND (t.released_at IS NOT NULL OR t.expires_at <= @now) THEN 1
		WHEN x.acquired_at > t.acquired_at THEN 1 ELSE 0 END
) THEN UPDATE SET
	lock_name = x.lock_name, node_id = x.node_id, machine = x.machine, pid = x.pid, holder_id = x.holder_id,
	kind = x.kind, slot = x.slot, slots = x.slots,
	-- for a host: the number of the last counted batch
	fence = CASE WHEN t.sort = {host} AND t.fence > x.fence THEN t.fence ELSE x.fence END, grant_id = x.grant_id,
	acquired_at = x.acquired_at, renewed_at = x.renewed_at, expires_at = x.expires_at, released_at = x.released_at,
	ttl = x.ttl, up_for = x.up_for, data = x.data, detail = COALESCE(x.detail, t.detail)
WHEN NOT MATCHED AND (x.sort <> {host} OR x.detail IS NOT NULL) THEN
	INSERT (sort, id, lock_name, node_id, machine, pid, holder_id, kind, slot, slots, fence, grant_id,
		acquired_at, renewed_at, expires_at, released_at, happened_at, ttl, up_for, data, detail)
	VALUES (x.sort, x.id, x.lock_name, x.node_id, x.machine, x.pid, x.holder_id, x.kind, x.slot, x.slots,
		CASE WHEN x.sort = {host} THEN 0 ELSE x.fence END, x.grant_id, x.acquired_at, x.renewed_at, x.expires_at,
		x.released_at, x.happened_at, x.ttl, x.up_for, x.data,
		x.detail);

-- name: merge_counted
MERGE {table} WITH (HOLDLOCK) AS t USING (
	SELECT sort, CASE WHEN sort = {timer_sort} THEN id
			ELSE id + CONVERT(varbinary(20), CONVERT(varchar(20), {minutes} / NULLIF(slots, 0))) END AS id,
		lock_name, node_id, machine, pid, holder_id, kind, slot, slots, fence, grant_id, acquired_at, renewed_at,
		expires_at, released_at,
		CASE WHEN sort <> {timer_sort} THEN DATEADD(minute, {minutes}, '1970-01-01') END AS happened_at,
		ttl, up_for, data
	FROM ({rows_in}) AS r WHERE sort IN ({timer_sort}, {fine_sort}, {coarse_sort})
) AS x ON t.sort = x.sort AND t.id = x.id
WHEN MATCHED THEN UPDATE SET
	node_id = CASE WHEN x.renewed_at >= t.renewed_at THEN x.node_id ELSE t.node_id END,
	machine = CASE WHEN x.renewed_at >= t.renewed_at THEN x.machine ELSE t.machine END,
	pid = CASE WHEN t.sort <> {timer_sort} THEN t.pid + x.pid
		WHEN x.renewed_at >= t.renewed_at THEN x.pid ELSE t.pid END,
	holder_id = CASE WHEN x.renewed_at >= t.renewed_at THEN x.holder_id ELSE t.holder_id END,
	kind = CASE WHEN x.renewed_at >= t.renewed_at THEN x.kind ELSE t.kind END,
	slot = CASE WHEN x.renewed_at >= t.renewed_at THEN x.slot ELSE t.slot END,
	fence = CASE WHEN t.sort <> {timer_sort} THEN t.fence + x.fence
		WHEN x.renewed_at >= t.renewed_at THEN x.fence ELSE t.fence END,
	grant_id = RIGHT(t.grant_id + x.grant_id, {max_outcomes}),
	acquired_at = CASE WHEN {old_since} IS NULL OR {new_since} < {old_since} THEN {new_since} ELSE {old_since} END,
	renewed_at = CASE WHEN x.renewed_at >= t.renewed_at THEN x.renewed_at ELSE t.renewed_at END,
	expires_at = CASE WHEN {new_since} IS NULL THEN CASE WHEN {old_since} IS NOT NULL THEN t.expires_at END
		WHEN {old_since} IS NULL OR x.expires_at > t.expires_at THEN x.expires_at ELSE t.expires_at END,
	released_at = {last_success},
	ttl = CASE WHEN x.ttl > t.ttl THEN x.ttl ELSE t.ttl END,
	up_for = CASE WHEN t.sort <> {timer_sort} THEN t.up_for + x.up_for
		ELSE CASE {old_since} WHEN t.acquired_at THEN t.up_for WHEN t.expires_at THEN 1 ELSE 0 END
			+ CASE {new_since} WHEN x.acquired_at THEN x.up_for WHEN x.expires_at THEN 1 ELSE 0 END END,
	data = CASE WHEN x.renewed_at >= t.renewed_at THEN x.data ELSE t.data END
WHEN NOT MATCHED THEN
	INSERT (sort, id, lock_name, node_id, machine, pid, holder_id, kind, slot, slots, fence, grant_id,
		acquired_at, renewed_at, expires_at, released_at, happened_at, ttl, up_for, data)
	VALUES (x.sort, x.id, x.lock_name, x.node_id, x.machine, x.pid, x.holder_id, x.kind, x.slot, x.slots, x.fence,
		x.grant_id, x.acquired_at, x.renewed_at, x.expires_at, x.released_at, x.happened_at, x.ttl, x.up_for, x.data);

-- name: columns
SET NOCOUNT ON;
SET LOCK_TIMEOUT {wait_ms};
DECLARE @now datetime2(6) = SYSUTCDATETIME();
SELECT t.sort, t.id, t.lock_name, t.machine, t.pid, t.holder_id, t.kind, t.slot, t.slots, t.fence, t.grant_id,
	DATEDIFF_BIG(MICROSECOND, t.acquired_at, @now), DATEDIFF_BIG(MICROSECOND, t.renewed_at, @now),
	DATEDIFF_BIG(MICROSECOND, t.expires_at, @now), DATEDIFF_BIG(MICROSECOND, t.released_at, @now),
	DATEDIFF_BIG(MICROSECOND, t.happened_at, @now), t.ttl, t.up_for, t.data, t.detail

-- name: read
{columns}
FROM (
	SELECT * FROM {table} WHERE sort IN ({host}, {lease})
	UNION ALL
	SELECT * FROM (SELECT TOP ({events}) * FROM {table} WHERE sort = {event} ORDER BY happened_at DESC, id DESC) AS e
	UNION ALL
	SELECT * FROM (SELECT TOP ({runs}) * FROM {table} WHERE sort = {run} ORDER BY happened_at DESC, id DESC) AS r
	UNION ALL
	SELECT * FROM (SELECT TOP ({timers}) * FROM {table} WHERE sort = {timer_sort}
		ORDER BY CASE WHEN up_for > 0 THEN 0 ELSE 1 END, renewed_at DESC) AS f
) AS t;

-- name: timer_runs
{columns}
FROM (
	SELECT TOP ({runs_per_timer}) * FROM {table} WHERE sort = {run} AND lock_name = {timer}
	ORDER BY happened_at DESC, id DESC
) AS t;

-- name: buckets
{columns}
FROM {table} AS t WHERE t.sort IN ({fine_sort}, {coarse_sort}) AND t.lock_name = {timer};

-- name: timer_is_old
DATEDIFF_BIG(MICROSECOND, o.renewed_at, @now) > {runs}

-- name: host_is_old
DATEDIFF_BIG(MICROSECOND, o.renewed_at, @now) > {hosts} AND DATEDIFF_BIG(MICROSECOND, o.renewed_at, @now) > 3 * o.ttl

-- name: lease_is_old
DATEDIFF_BIG(MICROSECOND, o.renewed_at, @now) > {leases}
	AND (o.released_at IS NOT NULL OR DATEDIFF_BIG(MICROSECOND, o.expires_at, @now) > {leases})

-- name: sweep
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT {wait_ms};
DECLARE @now datetime2(6) = SYSUTCDATETIME();
DELETE o FROM {table} AS o JOIN (
	SELECT * FROM (SELECT TOP ({limit}) sort, id FROM {table} AS o WHERE sort = {host} AND {host_is_old}) AS h
	UNION ALL
	SELECT * FROM (SELECT TOP ({limit}) sort, id FROM {table} AS o WHERE sort = {lease} AND {lease_is_old}) AS l
	UNION ALL
	SELECT * FROM (SELECT TOP ({limit}) sort, id FROM (SELECT sort, id, happened_at,
			ROW_NUMBER() OVER (ORDER BY happened_at DESC, id DESC) AS n
			FROM {table} WHERE sort = {event}) AS o
		WHERE n > {max_events} OR DATEDIFF_BIG(MICROSECOND, happened_at, @now) > {events}) AS e
	UNION ALL
	SELECT * FROM (SELECT TOP ({limit}) sort, id FROM (
			SELECT sort, id FROM {table} WHERE sort = {run} AND DATEDIFF_BIG(MICROSECOND, happened_at, @now) > {runs}
			UNION
			SELECT sort, id FROM (SELECT sort, id,
				ROW_NUMBER() OVER (PARTITION BY lock_name ORDER BY happened_at DESC, id DESC) AS n
				FROM {table} WHERE sort = {run} AND lock_name IN (
					SELECT lock_name FROM {table} WHERE sort = {run}
					GROUP BY lock_name HAVING COUNT(*) > {runs_per_timer})
			) AS x WHERE n > {runs_per_timer}
		) AS y) AS r
	UNION ALL
	SELECT * FROM (SELECT TOP ({limit}) sort, id FROM {table} AS o WHERE sort = {timer_sort} AND {timer_is_old}) AS f
	UNION ALL
	SELECT * FROM (SELECT TOP ({limit}) sort, id FROM {table} WHERE sort = {fine_sort}
		AND happened_at < DATEADD(second, -({fine} / 1000000), @now)) AS b
	UNION ALL
	SELECT * FROM (SELECT TOP ({limit}) sort, id FROM {table} WHERE sort = {coarse_sort}
		AND happened_at < DATEADD(second, -({coarse} / 1000000), @now)) AS c
) AS old ON old.sort = o.sort AND old.id = o.id
WHERE o.sort NOT IN ({host}, {lease}, {timer_sort}) OR o.sort = {host} AND {host_is_old}
	OR o.sort = {lease} AND {lease_is_old} OR o.sort = {timer_sort} AND {timer_is_old};
SELECT @@ROWCOUNT;
