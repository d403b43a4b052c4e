-- Deletes, of the @p3 rows after (@p1, @p2), those that have not been used for @p4 µs. Slots are
-- deleted from the highest one down, because a gap would hide a slot for a while. The row with slot
-- -1 is deleted when no slot of that name is left. A row whose fence is ahead of the clock stays,
-- and so does one that another session has locked.
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT {wait};
DECLARE @after varbinary(544) = @p1, @slot int = @p2, @limit int = @p3, @retention bigint = @p4, @deleted int;
DECLARE @clock datetime2(6) = SYSUTCDATETIME();
DECLARE @clock_us bigint = DATEDIFF_BIG(MICROSECOND, '1970-01-01', @clock);
DECLARE @before datetime2(6) = DATEADD(SECOND, -(@retention / 1000000), @clock);
DECLARE @page TABLE (resource_name varbinary(544), slot int);
INSERT INTO @page SELECT TOP (@limit) resource_name, slot FROM {table}
WHERE resource_name > @after OR resource_name = @after AND slot > @slot ORDER BY resource_name, slot;
DELETE l FROM {table} AS l WITH (ROWLOCK, READCOMMITTEDLOCK, READPAST)
	JOIN @page AS p ON p.resource_name = l.resource_name AND p.slot = l.slot
WHERE l.slot >= 0 AND l.fence < @clock_us
		AND COALESCE(l.acquired_at, @before) <= @before AND COALESCE(l.expires_at, @before) <= @before
		AND COALESCE(l.released_at, @before) <= @before
		AND NOT EXISTS (SELECT 1 FROM {table} AS s WHERE s.resource_name = l.resource_name AND s.slot > l.slot
			AND (s.acquired_at > @before OR s.expires_at > @before OR s.released_at > @before OR s.fence >= @clock_us))
	OR l.slot = -1 AND COALESCE(l.tick, 0) < @clock_us - @retention
		AND COALESCE(l.asked_at, 0) < @clock_us - @retention AND l.overrides_version IS NULL -- overrides stay
		AND NOT EXISTS (SELECT 1 FROM {table} AS s WHERE s.resource_name = l.resource_name AND s.slot >= 0);
SET @deleted = @@ROWCOUNT;
SELECT COUNT(*), @deleted, COALESCE((SELECT TOP (1) resource_name FROM @page ORDER BY resource_name DESC, slot DESC),
	0x),
	COALESCE((SELECT TOP (1) slot FROM @page ORDER BY resource_name DESC, slot DESC), 0)
FROM @page;
