-- Never run against a server. Registry of package cluster on SQL Server. DATEADD takes an int, so
-- seconds and microseconds are subtracted one after the other.

-- name: schema
-- The registry of tickslot: who is there, who holds what, and what happened.
--
-- sort is 'host', 'lease', 'event' or 'run'. For a lease the columns up to released_at say what the
-- holder last reported. Times are UTC. Names and ids are UTF-8 in binary because every collation
-- takes 'job' and 'job ' for one, and most take 'job' and 'JOB' for one. Ids are cut and end with a
-- hash if they are long.
IF OBJECT_ID({table_text}, N'U') IS NULL
CREATE TABLE {table} (
	sort        varbinary(8) NOT NULL,
	id          varbinary(255) NOT NULL,       -- lease: the slot, if it is a semaphore, a colon, and the name
	lock_name   varbinary(512) NOT NULL,       -- run: the timer
	node_id     nvarchar(300) NOT NULL,        -- machine/pid
	machine     nvarchar(255) NOT NULL,
	pid         bigint NOT NULL,
	holder_id   nvarchar(255) NOT NULL,        -- tells processes with one node_id apart
	kind        nvarchar(255) NOT NULL,        -- event: what happened; run: its outcome
	slot        int NOT NULL,
	slots       int NOT NULL,                  -- 0: a mutex
	fence       bigint NOT NULL,
	grant_id    nvarchar(255) NOT NULL,        -- tells the grants of one holder apart
	acquired_at datetime2(6) NULL,             -- host: when it started
	renewed_at  datetime2(6) NULL,             -- host: when it was last seen
	expires_at  datetime2(6) NULL,
	released_at datetime2(6) NULL,             -- host: when it stopped in good order
	happened_at datetime2(6) NULL,             -- of an event, and the end of a run; else NULL
	ttl         bigint NULL,                   -- of a host, in microseconds
	up_for      bigint NULL,                   -- of a host, when it was last seen, in microseconds
	data        nvarchar(max) NOT NULL,        -- the rest, as JSON
	detail      nvarchar(max) NULL,            -- of a host, as JSON
	PRIMARY KEY CLUSTERED (sort, id),
	INDEX recent NONCLUSTERED (sort, happened_at, id),         -- finds the newest events and runs of all
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

-- name: write
-- rows: as JSON, with their times in microseconds ago, and names and ids in hex.
-- host_id: of the host whose heartbeat is written.
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT {wait_ms};
DECLARE @now datetime2(6) = SYSUTCDATETIME();
MERGE {table} WITH (HOLDLOCK) AS t USING (
	SELECT CONVERT(varbinary(8), sort, 2) AS sort, CONVERT(varbinary(255), id, 2) AS id,
		CONVERT(varbinary(512), lock_name, 2) AS lock_name, node_id, machine, pid, holder_id, kind, slot, slots, fence,
		grant_id,
		DATEADD(microsecond, -(acquired % 1000000), DATEADD(second, -(acquired / 1000000), @now)) AS acquired_at,
		DATEADD(microsecond, -(renewed % 1000000), DATEADD(second, -(renewed / 1000000), @now)) AS renewed_at,
		DATEADD(microsecond, -(expires % 1000000), DATEADD(second, -(expires / 1000000), @now)) AS expires_at,
		DATEADD(microsecond, -(released % 1000000), DATEADD(second, -(released / 1000000), @now)) AS released_at,
		DATEADD(microsecond, -(happened % 1000000), DATEADD(second, -(happened / 1000000), @now)) AS happened_at,
		ttl, up_for, data, detail
	FROM OPENJSON({rows}) WITH (sort varchar(16), id varchar(510), lock_name varchar(1024), node_id nvarchar(300),
		machine nvarchar(255), pid bigint, holder_id nvarchar(255), kind nvarchar(255), slot int, slots int,
		fence bigint, grant_id nvarchar(255), acquired bigint, renewed bigint, expires bigint, released bigint,
		happened bigint, ttl bigint, up_for bigint, data nvarchar(max), detail nvarchar(max))
) AS x ON t.sort = x.sort AND t.id = x.id
WHEN MATCHED AND (
	t.sort = {host} AND x.up_for >= t.up_for
	OR t.sort = {lease} AND 1 = CASE
		WHEN CONVERT(varbinary(510), t.machine) = CONVERT(varbinary(510), x.machine) AND t.pid = x.pid
			AND CONVERT(varbinary(510), t.holder_id) = CONVERT(varbinary(510), x.holder_id)
			AND CONVERT(varbinary(510), t.grant_id) = CONVERT(varbinary(510), x.grant_id)
			THEN CASE WHEN t.released_at IS NULL THEN 1 ELSE 0 END
		WHEN t.fence <> 0 AND x.fence <> 0 THEN CASE WHEN x.fence > t.fence THEN 1 ELSE 0 END
		-- It is live and the row is over: the row may be a late record of an earlier holder.
		WHEN x.released_at IS NULL AND x.expires_at > @now
			AND (t.released_at IS NOT NULL OR t.expires_at <= @now) THEN 1
		WHEN x.acquired_at > t.acquired_at THEN 1 ELSE 0 END
) THEN UPDATE SET
	lock_name = x.lock_name, node_id = x.node_id, machine = x.machine, pid = x.pid, holder_id = x.holder_id,
	kind = x.kind, slot = x.slot, slots = x.slots, fence = x.fence, grant_id = x.grant_id,
	acquired_at = x.acquired_at, renewed_at = x.renewed_at, expires_at = x.expires_at, released_at = x.released_at,
	ttl = x.ttl, up_for = x.up_for, data = x.data, detail = COALESCE(x.detail, t.detail)
WHEN NOT MATCHED AND (x.sort <> {host} OR x.detail IS NOT NULL) THEN
	INSERT (sort, id, lock_name, node_id, machine, pid, holder_id, kind, slot, slots, fence, grant_id,
		acquired_at, renewed_at, expires_at, released_at, happened_at, ttl, up_for, data, detail)
	VALUES (x.sort, x.id, x.lock_name, x.node_id, x.machine, x.pid, x.holder_id, x.kind, x.slot, x.slots, x.fence,
		x.grant_id, x.acquired_at, x.renewed_at, x.expires_at, x.released_at, x.happened_at, x.ttl, x.up_for, x.data,
		x.detail);
SELECT CASE WHEN EXISTS (SELECT 1 FROM {table} WHERE sort = {host} AND id = {host_id}) THEN 1 ELSE 0 END,
	DATEDIFF_BIG(MICROSECOND, '1970-01-01', @now);

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
) AS t;

-- name: timer_runs
{columns}
FROM (
	SELECT TOP ({runs_per_timer}) * FROM {table} WHERE sort = {run} AND lock_name = {timer}
	ORDER BY happened_at DESC, id DESC
) AS t;

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
) AS old ON old.sort = o.sort AND old.id = o.id
WHERE o.sort NOT IN ({host}, {lease}) OR o.sort = {host} AND {host_is_old} OR o.sort = {lease} AND {lease_is_old};
SELECT @@ROWCOUNT;
