-- Takes a free slot, and a start of a tick if one is wanted, in one atomic step: one batch, which the server executes whether or not the client
-- is still there, so that no client can stop in the middle of a transaction.
--
-- Grants of one name come one after the other, by a lock on the name. A slot that was held when it was looked at was held when the first of them
-- was looked at, too, since nobody else could grant it meanwhile: so none is refused while a slot is free.
SET NOCOUNT ON;
SET XACT_ABORT ON;
DECLARE @resource varbinary(544) = @p1, @slots int = @p2, @token varbinary(64) = @p3, @ttl bigint = @p4, @tick bigint = @p5, @max int = @p6,
	@ahead bigint = @p7, @host nvarchar(255) = @p8, @pid bigint = @p9, @tag nvarchar(255) = @p10, @wait int = @p11;
DECLARE @n int = CASE WHEN @slots > 0 THEN @slots ELSE 1 END;
DECLARE @name nvarchar(255) = N'tickslot ' + CONVERT(nvarchar(64), HASHBYTES('SHA2_256', @resource), 2);
DECLARE @verdict varchar(16), @slot int, @fence bigint, @declared int, @last_tick bigint, @starts int, @locked int, @succeeded datetime2(6), @before datetime2(6);
DECLARE @first int, @ends datetime2(6), @since datetime2(6), @who nvarchar(255), @who_pid bigint, @who_tag nvarchar(255);
SET LOCK_TIMEOUT {wait};
BEGIN TRANSACTION;
EXEC @locked = sp_getapplock @Resource = @name, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = @wait;
IF @locked < 0
	THROW 51222, 'tickslot: the name was locked for too long', 1;

DECLARE @clock datetime2(6) = SYSUTCDATETIME();
DECLARE @clock_us bigint = DATEDIFF_BIG(MICROSECOND, '1970-01-01', @clock);
-- DATEADD takes an int: milliseconds, rounded up, last for 24 days.
DECLARE @until datetime2(6) = DATEADD(MILLISECOND, (@ttl + 999) / 1000, @clock);
SELECT @last_tick = tick, @starts = tick_starts, @declared = slots, @succeeded = succeeded_at FROM {table} WHERE resource_name = @resource AND slot = -1;
SELECT TOP (1) @first = slot, @ends = expires_at, @since = acquired_at, @who = host_name, @who_pid = process_id, @who_tag = process_tag
FROM {table} WITH (INDEX (ends)) WHERE resource_name = @resource AND slot >= 0 AND slot < @n ORDER BY expires_at;

-- The same attempt, asked again because its reply was lost.
UPDATE {table} SET expires_at = @until, @slot = slot, @fence = fence
WHERE lock_id = @token AND resource_name = @resource AND slot >= 0 AND slot < @n AND expires_at > SYSUTCDATETIME();
IF @slot IS NOT NULL
	SET @verdict = 'ok';
-- The tick: a scheduled instant, started at most @max times, never after a later one.
ELSE IF @tick > @clock_us + @ahead
	SET @verdict = 'tick_ahead';
ELSE IF @tick < @last_tick
	SET @verdict = 'tick_late';
ELSE IF @tick = @last_tick AND @starts >= @max
	SET @verdict = 'tick_taken';
ELSE
BEGIN
	-- A slot that ended. It is looked at again: it may have been extended at the last moment.
	IF @ends <= @clock
		UPDATE {table} SET lock_id = @token, @fence = fence = CASE WHEN fence + 1 > @clock_us THEN fence + 1 ELSE @clock_us END,
			acquired_at = @clock, expires_at = @until, released_at = NULL, host_name = @host, process_id = @pid, process_tag = @tag, @slot = slot,
			@before = expires_at -- what it was
		WHERE resource_name = @resource AND slot = @first AND expires_at <= SYSUTCDATETIME();
	-- A new one, or one whose row somebody deleted.
	IF @slot IS NULL
	BEGIN
		SELECT @slot = MIN(free.slot) FROM (
			SELECT 0 AS slot UNION ALL SELECT slot + 1 FROM {table} WHERE resource_name = @resource AND slot >= 0
		) AS free
		WHERE free.slot < @n AND NOT EXISTS (SELECT 1 FROM {table} AS t WHERE t.resource_name = @resource AND t.slot = free.slot);
		IF @slot IS NOT NULL
		BEGIN
			SET @fence = @clock_us;
			INSERT INTO {table} (resource_name, slot, lock_id, fence, acquired_at, expires_at, host_name, process_id, process_tag)
			VALUES (@resource, @slot, @token, @fence, @clock, @until, @host, @pid, @tag);
		END
	END
	IF @slot IS NULL
		SET @verdict = 'full';
	ELSE
	BEGIN
		SET @verdict = 'ok';
		IF @declared IS NULL
			INSERT INTO {table} (resource_name, slot, tick, tick_starts, slots) VALUES (@resource, -1, @tick, 1, @slots);
		ELSE IF @tick IS NOT NULL OR @declared <> @slots
			UPDATE {table} SET tick = COALESCE(@tick, tick), slots = @slots,
				tick_starts = CASE WHEN @tick IS NULL THEN tick_starts WHEN @tick = tick THEN tick_starts + 1 ELSE 1 END
			WHERE resource_name = @resource AND slot = -1;
	END
END
COMMIT TRANSACTION;
SELECT @verdict, COALESCE(@slot, 0), COALESCE(@fence, 0), COALESCE(@declared, 0),
	CASE WHEN @succeeded IS NULL THEN 0 WHEN @succeeded >= @clock THEN 1 ELSE DATEDIFF_BIG(MICROSECOND, @succeeded, @clock) END,
	CASE @verdict WHEN 'full' THEN COALESCE(@who, N'') ELSE N'' END, CASE @verdict WHEN 'full' THEN COALESCE(@who_pid, 0) ELSE 0 END,
	CASE @verdict WHEN 'full' THEN COALESCE(@who_tag, N'') ELSE N'' END,
	CASE @verdict WHEN 'full' THEN DATEDIFF_BIG(MICROSECOND, @since, @clock) ELSE 0 END,
	CASE @verdict WHEN 'full' THEN DATEDIFF_BIG(MICROSECOND, @clock, @ends) ELSE 0 END,
	CASE WHEN @before > '1970-01-01' THEN 1 ELSE 0 END;
