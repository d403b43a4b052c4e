-- Never run against a server.

-- name: update
-- Changes the overrides of a name: a pause for @p2 µs (0: resume) by the origin @p3, a limit of @p4
-- slots (-1: as declared) by the origin @p5, a run requested by the origin @p6. NULL leaves a value
-- unchanged. If @p9 is not NULL and the name has version @p9, kept_value becomes @p8. If the name
-- has another version, nothing changes.
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT {wait};
DECLARE @resource varbinary(544) = @p1, @pause bigint = @p2, @pause_origin nvarchar(4000) = @p3, @limit int = @p4,
	@limit_origin nvarchar(4000) = @p5,
	@trigger_origin nvarchar(4000) = @p6, @wait int = @p7, @locked int, @value nvarchar(max) = @p8,
	@if_version bigint = @p9, @rows int;
DECLARE @name nvarchar(255) = N'tickslot ' + CONVERT(nvarchar(64), HASHBYTES('SHA2_256', @resource), 2);
BEGIN TRANSACTION;
EXEC @locked = sp_getapplock @Resource = @name, @LockMode = 'Exclusive', @LockOwner = 'Transaction',
	@LockTimeout = @wait;
IF @locked < 0
	THROW 51222, 'tickslot: the name was locked for too long', 1;
DECLARE @clock datetime2(6) = SYSUTCDATETIME();
DECLARE @clock_us bigint = DATEDIFF_BIG(MICROSECOND, '1970-01-01', @clock);
IF NOT EXISTS (SELECT 1 FROM {table} WHERE resource_name = @resource AND slot = -1)
	INSERT INTO {table} (resource_name, slot) VALUES (@resource, -1);
-- The right side of an assignment reads the old values.
UPDATE {table} SET
	overrides_version = CASE WHEN overrides_version >= @clock_us THEN overrides_version + 1 ELSE @clock_us END,
	paused_until = CASE
		-- DATEADD takes an int.
		WHEN @pause > 0 THEN DATEADD(MICROSECOND, @pause % 1000000, DATEADD(SECOND, @pause / 1000000, @clock))
		-- not the clock: if it is ahead and is set back, that would be a pause again
		WHEN @pause = 0 AND paused_until > @clock THEN NULL
		ELSE paused_until END,
	resumed_at = CASE
		WHEN @pause > 0 THEN resumed_at
		WHEN @pause = 0 AND paused_until > @clock THEN @clock
		-- ticks under a limit of 0 were not missed
		WHEN slot_limit = 0 AND @limit <> 0 AND (paused_until IS NULL OR paused_until < @clock) THEN @clock
		ELSE resumed_at END,
	pause_origin = CASE
		WHEN @pause > 0 OR @pause = 0 AND paused_until > @clock THEN @pause_origin
		WHEN slot_limit = 0 AND @limit <> 0 AND (paused_until IS NULL OR paused_until < @clock) THEN @limit_origin
		ELSE pause_origin END,
	slot_limit = CASE WHEN @limit IS NULL THEN slot_limit WHEN @limit >= 0 THEN @limit END,
	limit_origin = COALESCE(@limit_origin, limit_origin),
	triggered_at = CASE WHEN @trigger_origin IS NULL THEN triggered_at
		WHEN triggered_at >= @clock_us THEN triggered_at + 1 ELSE @clock_us END,
	trigger_origin = COALESCE(@trigger_origin, trigger_origin),
	kept_value = CASE WHEN @if_version IS NULL THEN kept_value ELSE @value END
WHERE resource_name = @resource AND slot = -1
	AND (@if_version IS NULL OR @if_version = COALESCE(overrides_version, 0));
SET @rows = @@ROWCOUNT;
COMMIT TRANSACTION;
SELECT @rows;

-- name: inspect
-- Names are in hex, both here and in the answer.
DECLARE @names nvarchar(max) = @p1;
DECLARE @clock datetime2(6) = SYSUTCDATETIME();
DECLARE @clock_us bigint = DATEDIFF_BIG(MICROSECOND, '1970-01-01', @clock);
DECLARE @known nvarchar(max) = (
	SELECT CONVERT(varchar(1088), l.resource_name, 2) AS n, COALESCE(l.overrides_version, 0) AS [version],
		CASE WHEN l.paused_until > @clock THEN DATEDIFF_BIG(MICROSECOND, @clock, l.paused_until) ELSE 0 END
			AS pause_left,
		COALESCE(l.pause_origin, N'') AS pause_origin,
		l.slot_limit AS [limit], COALESCE(l.limit_origin, N'') AS limit_origin,
		l.triggered_at AS triggered_at, COALESCE(@clock_us - l.triggered_at, 0) AS trigger_age,
		COALESCE(l.trigger_origin, N'') AS trigger_origin,
		l.tick AS tick, COALESCE(l.host_name, N'') AS host, COALESCE(l.process_id, 0) AS pid,
		COALESCE(l.process_tag, N'') AS id, @clock_us AS clock,
		CASE WHEN @p2 = 1 THEN COALESCE(l.kept_value, N'') ELSE N'' END AS [value]
	FROM {table} AS l JOIN (SELECT DISTINCT CONVERT(varbinary(544), [value], 2) AS n FROM OPENJSON(@names)) AS w
		ON l.resource_name = w.n
	WHERE l.slot = -1 FOR JSON PATH);
SELECT COALESCE(@known, N'[]');

-- name: revoke
-- Marks the lease of slot @p2 as revoked by the origin @p4 if it is held with fence @p3. The first
-- revocation stays; a second one changes nothing.
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT {wait};
UPDATE {table} SET revoked = COALESCE(revoked, @p4)
WHERE resource_name = @p1 AND slot = @p2 AND fence = @p3 AND expires_at > SYSUTCDATETIME();
SELECT @@ROWCOUNT;
