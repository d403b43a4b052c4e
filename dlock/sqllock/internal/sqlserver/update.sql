-- Changes the overrides of a name: a pause for @p2 µs (0: resume) by the origin @p3, a limit of @p4
-- slots (-1: as declared) by the origin @p5, one run by the origin @p6. NULL leaves a value as it
-- is. If @p9 is not NULL, kept_value becomes @p8, provided that the name has version @p9: otherwise
-- nothing is changed.
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
		-- DATEADD takes an int
		WHEN @pause > 0 THEN DATEADD(MICROSECOND, @pause % 1000000, DATEADD(SECOND, @pause / 1000000, @clock))
		-- not the clock: that would be a pause again if it is ahead, and is set back
		WHEN @pause = 0 AND paused_until > @clock THEN NULL
		ELSE paused_until END,
	resumed_at = CASE
		WHEN @pause > 0 THEN resumed_at
		WHEN @pause = 0 AND paused_until > @clock THEN @clock
		-- nothing was missed under a limit of 0
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
