-- Ends each lease that its token still holds. The row stays: it stores the fence and the last
-- holder. Locked rows are handled as in extend.sql.
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
