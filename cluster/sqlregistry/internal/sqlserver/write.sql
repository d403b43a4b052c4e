-- @p1: the rows as JSON, with their times in microseconds ago, and names and ids in hex.
-- @p2: the id of the host whose heartbeat is written.
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT {wait};
DECLARE @now datetime2(6) = SYSUTCDATETIME();
MERGE {table} WITH (HOLDLOCK) AS t USING (
	SELECT CONVERT(varbinary(8), sort, 2) AS sort, CONVERT(varbinary(255), id, 2) AS id,
		CONVERT(varbinary(512), lock_name, 2) AS lock_name, node_id, machine, pid, holder_id, kind, slot, slots, fence,
		grant_id, {acquired} AS acquired_at, {renewed} AS renewed_at, {expires} AS expires_at,
		{released} AS released_at, {happened} AS happened_at, ttl, up_for, data, detail
	FROM OPENJSON(@p1) WITH (sort varchar(16), id varchar(510), lock_name varchar(1024), node_id nvarchar(300),
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
SELECT CASE WHEN EXISTS (SELECT 1 FROM {table} WHERE sort = {host} AND id = @p2) THEN 1 ELSE 0 END,
	DATEDIFF_BIG(MICROSECOND, '1970-01-01', @now);
