-- Never run against a server.

-- name: extend
-- Extends each lease to @p1 µs from now if its token still holds it and it was not revoked. The
-- statement skips locked rows and reports their leases as unknown.
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT {wait};
DECLARE @ttl bigint = @p1, @grants nvarchar(max) = @p2, @answers nvarchar(max);
DECLARE @wanted TABLE (i int PRIMARY KEY, n varbinary(544), s int, t varbinary(64));
INSERT INTO @wanted SELECT i, CONVERT(varbinary(544), n, 2), s, CONVERT(varbinary(64), t, 2)
FROM OPENJSON(@grants) WITH (i int '$[0]', n varchar(1088) '$[1]', s int '$[2]', t varchar(128) '$[3]');
DECLARE @held TABLE (resource_name varbinary(544), slot int, lock_id varbinary(64));
UPDATE l SET expires_at = DATEADD(MILLISECOND, (@ttl + 999) / 1000, SYSUTCDATETIME()), renewed_at = SYSUTCDATETIME()
OUTPUT inserted.resource_name, inserted.slot, inserted.lock_id INTO @held
FROM {table} AS l WITH (ROWLOCK, READCOMMITTEDLOCK, READPAST) JOIN @wanted AS w ON l.resource_name = w.n
	AND l.slot = w.s AND l.lock_id = w.t
WHERE l.expires_at > SYSUTCDATETIME() AND l.revoked IS NULL;
SELECT @answers = STRING_AGG(CAST(CONCAT('[', w.i, ',', CASE WHEN h.slot IS NOT NULL THEN 1 WHEN r.revoked IS NULL
	AND there.slot IS NOT NULL THEN -1 ELSE 0 END, ',', COALESCE(head.slots, 0), ',',
	COALESCE(head.overrides_version, 0), ',', COALESCE(N'"' + STRING_ESCAPE(r.revoked, 'json') + N'"', N'null'),
		']') AS nvarchar(max)), ',')
FROM @wanted AS w
LEFT JOIN @held AS h ON h.resource_name = w.n AND h.lock_id = w.t
LEFT JOIN {table} AS r WITH (READCOMMITTEDLOCK, READPAST) ON r.resource_name = w.n AND r.slot = w.s AND r.lock_id = w.t
	AND r.expires_at > SYSUTCDATETIME()
	AND h.slot IS NULL
LEFT JOIN {table} AS there WITH (NOLOCK) ON there.resource_name = w.n AND there.slot = w.s AND there.lock_id = w.t
	AND there.expires_at > SYSUTCDATETIME() AND h.slot IS NULL -- also if the row is locked
LEFT JOIN {table} AS head WITH (READCOMMITTEDLOCK, READPAST) ON head.resource_name = w.n AND head.slot = -1;
SELECT CONCAT('[', @answers, ']');

-- name: release
-- Ends each lease that its token still holds. The row stays: it stores the fence and the last
-- holder. Locked rows are handled as in extend.
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT {wait};
DECLARE @grants nvarchar(max) = @p1, @answers nvarchar(max);
DECLARE @wanted TABLE (i int PRIMARY KEY, n varbinary(544), s int, t varbinary(64), w int);
INSERT INTO @wanted SELECT i, CONVERT(varbinary(544), n, 2), s, CONVERT(varbinary(64), t, 2), w
FROM OPENJSON(@grants) WITH (i int '$[0]', n varchar(1088) '$[1]', s int '$[2]', t varchar(128) '$[3]', w int '$[4]');
DECLARE @held TABLE (resource_name varbinary(544), slot int, lock_id varbinary(64));
BEGIN TRANSACTION;
UPDATE l SET expires_at = '1970-01-01', released_at = SYSUTCDATETIME()
OUTPUT inserted.resource_name, inserted.slot, inserted.lock_id INTO @held
FROM {table} AS l WITH (ROWLOCK, READCOMMITTEDLOCK, READPAST) JOIN @wanted AS w ON l.lock_id = w.t
	AND l.resource_name = w.n AND (w.s = -1 OR l.slot = w.s)
WHERE l.expires_at > SYSUTCDATETIME() AND l.slot >= 0;
UPDATE head SET succeeded_at = SYSUTCDATETIME()
FROM {table} AS head WITH (ROWLOCK, READCOMMITTEDLOCK, READPAST)
WHERE head.slot = -1 AND head.resource_name IN (
	SELECT h.resource_name FROM @held AS h JOIN @wanted AS w ON w.n = h.resource_name
		AND w.t = h.lock_id WHERE w.w = 1);
COMMIT TRANSACTION;
SELECT @answers = STRING_AGG(CAST(CONCAT('[', w.i, ',', CASE WHEN h.slot IS NOT NULL THEN 1
	WHEN there.lock_id IS NOT NULL THEN -1 ELSE 0 END, ',', COALESCE(head.slots, 0), ']') AS nvarchar(max)), ',')
FROM @wanted AS w
LEFT JOIN @held AS h ON h.resource_name = w.n AND h.lock_id = w.t
LEFT JOIN (
	SELECT DISTINCT t.resource_name, t.lock_id FROM {table} AS t WITH (NOLOCK) JOIN @wanted AS v ON t.lock_id = v.t
		AND t.resource_name = v.n
	WHERE t.slot >= 0 AND (v.s = -1 OR t.slot = v.s) AND t.expires_at > SYSUTCDATETIME()
) AS there ON there.resource_name = w.n AND there.lock_id = w.t
LEFT JOIN {table} AS head WITH (READCOMMITTEDLOCK, READPAST) ON head.resource_name = w.n AND head.slot = -1;
SELECT CONCAT('[', @answers, ']');

-- name: list
DECLARE @held nvarchar(max) = (
	SELECT slot, COALESCE(host_name, N'') AS host, COALESCE(process_id, 0) AS pid,
		COALESCE(process_tag, N'') AS id, fence,
		DATEDIFF_BIG(MICROSECOND, acquired_at, SYSUTCDATETIME()) AS held_for,
		DATEDIFF_BIG(MICROSECOND, renewed_at, SYSUTCDATETIME()) AS renewed_ago,
		DATEDIFF_BIG(MICROSECOND, SYSUTCDATETIME(), expires_at) AS expires_in
	FROM {table} WHERE resource_name = @p1 AND slot >= 0 AND expires_at > SYSUTCDATETIME()
	ORDER BY slot FOR JSON PATH);
SELECT COALESCE(@held, N'[]');

-- name: enumerate
-- Reads the @p4 rows after (@p2, @p3). Among them, returns the leases of names with the prefix @p1
-- that have not ended or were released less than @p5 µs ago. The prefix does not narrow the range,
-- because a page reads no more than @p4 rows. The statement neither waits for locked rows nor skips
-- them: a lease must not vanish from a list while it is extended.
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

-- name: cleanup
-- Deletes rows that have not been used for @p4 µs, among the @p3 rows after (@p1, @p2). It deletes
-- slots from the highest down, because a gap would hide a slot for a while. It deletes the row with
-- slot -1 when the name has no slot left. A row stays if its fence is ahead of the clock or another
-- session has locked it.
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
		AND COALESCE(l.asked_at, 0) < @clock_us - @retention AND l.overrides_version IS NULL -- keep overrides
		AND NOT EXISTS (SELECT 1 FROM {table} AS s WHERE s.resource_name = l.resource_name AND s.slot >= 0);
SET @deleted = @@ROWCOUNT;
SELECT COUNT(*), @deleted, COALESCE((SELECT TOP (1) resource_name FROM @page ORDER BY resource_name DESC, slot DESC),
	0x),
	COALESCE((SELECT TOP (1) slot FROM @page ORDER BY resource_name DESC, slot DESC), 0)
FROM @page;
