-- Extends each lease that its token still holds, and that was not revoked, to @p1 µs from now. It
-- skips locked rows and reports those leases as unknown.
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
	AND there.expires_at > SYSUTCDATETIME() AND h.slot IS NULL -- also if it is locked
LEFT JOIN {table} AS head WITH (READCOMMITTEDLOCK, READPAST) ON head.resource_name = w.n AND head.slot = -1;
SELECT CONCAT('[', @answers, ']');
