-- Looks at the @p4 rows after (@p2, @p3), and returns the leases among them, of names with the
-- prefix @p1, that have not ended or were released less than @p5 µs ago. The prefix is no condition
-- of the range, because a page reads no more than @p4 rows. It waits for no row that is locked, and
-- does not leave it out either: a lease must not vanish from a list while it is extended.
SET NOCOUNT ON;
SET LOCK_TIMEOUT {wait};
DECLARE @prefix varbinary(544) = @p1, @after varbinary(544) = @p2, @slot int = @p3, @limit int = @p4,
	@released bigint = @p5, @clock datetime2(6) = SYSUTCDATETIME();
DECLARE @page TABLE (resource_name varbinary(544), slot int, fence bigint, acquired_at datetime2(6),
	renewed_at datetime2(6), expires_at datetime2(6), released_at datetime2(6), host_name nvarchar(255),
	process_id bigint, process_tag nvarchar(255));
INSERT INTO @page SELECT TOP (@limit) resource_name, slot, fence, acquired_at, renewed_at, expires_at, released_at,
	host_name, process_id, process_tag
FROM {table} WITH (INDEX (1), NOLOCK)
WHERE resource_name >= @after AND (resource_name > @after OR slot > @slot) ORDER BY resource_name, slot;
DECLARE @leases nvarchar(max) = (
	SELECT CONVERT(varchar(1088), resource_name, 2) AS n, slot, COALESCE(host_name, N'') AS host,
		COALESCE(process_id, 0) AS pid, COALESCE(process_tag, N'') AS id, fence,
		COALESCE(DATEDIFF_BIG(MICROSECOND, acquired_at, @clock), 0) AS held_for,
		DATEDIFF_BIG(MICROSECOND, renewed_at, @clock) AS renewed_ago,
		DATEDIFF_BIG(MICROSECOND, @clock, expires_at) AS expires_in,
		CASE WHEN expires_at = '1970-01-01' THEN DATEDIFF_BIG(MICROSECOND, released_at, @clock) END AS released_ago
	FROM @page
	WHERE slot >= 0 AND SUBSTRING(resource_name, 1, DATALENGTH(@prefix)) = @prefix AND (expires_at > @clock
		OR expires_at = '1970-01-01' AND ABS(DATEDIFF_BIG(MICROSECOND, released_at, @clock)) < @released)
	FOR JSON PATH);
SELECT COALESCE(@leases, N'[]'), (SELECT COUNT(*) FROM @page),
	COALESCE((SELECT TOP (1) resource_name FROM @page ORDER BY resource_name DESC, slot DESC), 0x),
	COALESCE((SELECT TOP (1) slot FROM @page ORDER BY resource_name DESC, slot DESC), 0);
