-- Never run against a server.

-- name: acquire
-- Takes a free slot, and one start of a tick if the request has a tick, in one transaction. The
-- server completes the batch even if the client disconnects, so no client can stop in the middle of
-- a transaction.
--
-- An application lock on the name serializes its grants. While a session holds the lock, no other
-- session can grant a slot, so no request is refused while a slot is free.
SET NOCOUNT ON;
SET XACT_ABORT ON;
DECLARE @resource varbinary(544) = @p1, @slots int = @p2, @token varbinary(64) = @p3, @ttl bigint = @p4,
	@tick bigint = @p5, @max int = @p6, @missed bigint = @p7, @ahead bigint = @p8,
	@host nvarchar(255) = @p9, @pid bigint = @p10, @tag nvarchar(255) = @p11, @wait int = @p12,
	@schedule bigint = @p13;
DECLARE @name nvarchar(255) = N'tickslot ' + CONVERT(nvarchar(64), HASHBYTES('SHA2_256', @resource), 2);
DECLARE @reason varchar(16), @slot int, @fence bigint, @declared int, @last_tick bigint, @last_schedule bigint,
	@asked bigint, @asked_at bigint, @starts int, @locked int, @succeeded datetime2(6), @before datetime2(6);
DECLARE @first int, @ends datetime2(6), @since datetime2(6), @who nvarchar(255), @who_pid bigint,
	@who_tag nvarchar(255);
DECLARE @head int, @version bigint, @paused datetime2(6), @resumed datetime2(6),
	@pause_origin nvarchar(4000), @limit int,
	@limit_origin nvarchar(4000), @origin nvarchar(4000),
	@claimer nvarchar(255), @claimer_pid bigint, @claimer_tag nvarchar(255);
SET LOCK_TIMEOUT {wait};
BEGIN TRANSACTION;
EXEC @locked = sp_getapplock @Resource = @name, @LockMode = 'Exclusive', @LockOwner = 'Transaction',
	@LockTimeout = @wait;
IF @locked < 0
	THROW 51222, 'tickslot: the name was locked for too long', 1;

-- 1. read: everything that the decision depends on.
--
-- A later version may use the table in a way that this version would misread: see tableFormat.
IF EXISTS (SELECT 1 FROM {table} WHERE resource_name = 0x AND slot = -1 AND overrides_version > 1)
	THROW 51223, 'a later version of tickslot uses the table, with a format beyond 1: update this host', 1;
DECLARE @clock datetime2(6) = SYSUTCDATETIME();
DECLARE @clock_us bigint = DATEDIFF_BIG(MICROSECOND, '1970-01-01', @clock);
-- DATEADD takes an int. As milliseconds, rounded up, an int is enough for 24 days.
DECLARE @until datetime2(6) = DATEADD(MILLISECOND, (@ttl + 999) / 1000, @clock);
SELECT @head = slot, @last_tick = tick, @last_schedule = tick_schedule,
	@asked = asked_schedule, @asked_at = asked_at, @starts = tick_starts, @declared = slots,
	@succeeded = succeeded_at,
	@version = overrides_version, @paused = paused_until, @resumed = resumed_at, @pause_origin = pause_origin,
	@limit = slot_limit,
	@limit_origin = limit_origin,
	@claimer = host_name, @claimer_pid = process_id, @claimer_tag = process_tag
FROM {table} WHERE resource_name = @resource AND slot = -1;
-- Ignore values that were noted while the clock was ahead. They would refuse requests until the
-- clock caught up.
DECLARE @latest datetime2(6) = DATEADD(MICROSECOND, @ahead, @clock);
IF @last_tick > @clock_us + @ahead
	SET @last_tick = NULL;
IF @asked_at > @clock_us + @ahead
	SET @asked = NULL;
IF @succeeded > @latest
	SET @succeeded = NULL;
IF @resumed > @latest
	SET @resumed = NULL;
DECLARE @n int = CASE WHEN @limit > 0 THEN @limit WHEN @slots > 0 THEN @slots ELSE 1 END;
SELECT TOP (1) @first = slot, @ends = expires_at, @since = acquired_at, @who = host_name, @who_pid = process_id,
	@who_tag = process_tag
-- skips locked rows
FROM {table} WITH (INDEX (ends), READCOMMITTEDLOCK, READPAST) WHERE resource_name = @resource AND slot >= 0
	AND slot < @n ORDER BY expires_at;

-- 2. again: the same request, repeated because its reply was lost. The lease is extended even if it
-- was revoked: the caller trusts it for @ttl from this request on, and its first heartbeat reports
-- the revocation.
UPDATE {table} SET expires_at = @until, renewed_at = @clock, @slot = slot, @fence = fence
WHERE lock_id = @token AND resource_name = @resource AND slot >= 0 AND expires_at > SYSUTCDATETIME();
IF @slot IS NOT NULL
	SET @reason = 'ok';
-- 3. first: a missed tick whose schedule is unknown, or was unknown when the tick came due. From
-- now on the schedule is known.
ELSE IF @missed IS NOT NULL AND @tick <= @clock_us + @ahead
	AND (@last_tick IS NULL OR COALESCE(@last_schedule, 0) <> @schedule)
	AND (@asked IS NULL OR @asked <> @schedule OR @missed <= @asked_at)
BEGIN
	SET @reason = 'tick_first';
	IF @head IS NULL
		INSERT INTO {table} (resource_name, slot) VALUES (@resource, -1);
	IF @asked IS NULL OR @asked <> @schedule
		UPDATE {table} SET asked_schedule = @schedule,
			asked_at = CASE WHEN @missed > @clock_us + @ahead THEN @clock_us ELSE @missed END
		WHERE resource_name = @resource AND slot = -1;
END
-- 4. overrides: refuse during a pause or under a limit of 0.
ELSE IF @paused > @clock OR @limit = 0 OR @missed < DATEDIFF_BIG(MICROSECOND, '1970-01-01', @paused)
	OR @missed < DATEDIFF_BIG(MICROSECOND, '1970-01-01', @resumed)
	SELECT @reason = 'paused', @origin = CASE
		WHEN @limit = 0 AND (@paused IS NULL OR @paused <= @clock) THEN @limit_origin ELSE @pause_origin END;
-- 5. tick: it is started at most @max times, and never after a later tick.
ELSE IF @tick > @clock_us + @ahead
	SET @reason = 'tick_ahead';
ELSE IF @tick < COALESCE(@last_tick, 0)
	SET @reason = 'tick_late';
ELSE IF @tick = @last_tick AND @starts >= @max OR @missed IS NOT NULL AND @tick <= COALESCE(@last_tick, 0)
	SELECT @reason = 'tick_taken', @who = @claimer, @who_pid = @claimer_pid, @who_tag = @claimer_tag;
-- If a host held a lease when the tick came due, the tick was not missed.
ELSE IF @missed IS NOT NULL AND EXISTS (
	SELECT 1 FROM {table} WITH (READCOMMITTEDLOCK) WHERE resource_name = @resource AND slot >= 0
	AND (DATEDIFF_BIG(MICROSECOND, '1970-01-01', expires_at) > @missed
		OR released_at <= @latest AND DATEDIFF_BIG(MICROSECOND, '1970-01-01', released_at) > @missed))
	SET @reason = 'tick_held';
-- 6. slot: one whose lease has ended, a new one, or one whose row was deleted. With an overridden
-- limit, the leases of every slot count, because a lowered limit may be exceeded.
ELSE IF @limit > 0 AND @limit <= (
	SELECT COUNT(DISTINCT slot) FROM {table} WITH (READCOMMITTEDLOCK) WHERE resource_name = @resource AND slot >= 0
		AND expires_at > @clock)
BEGIN
	SET @reason = 'full';
	SELECT TOP (1) @ends = expires_at, @since = acquired_at, @who = host_name, @who_pid = process_id,
		@who_tag = process_tag
	FROM {table} WITH (INDEX (ends)) WHERE resource_name = @resource AND slot >= 0 AND expires_at > @clock
		ORDER BY expires_at;
END
ELSE
BEGIN
	-- 7. delay: no request on SQL Server has one. See KeepsDelay.
	-- 8. shared: no request on SQL Server has further semaphores. See TakesShared.
	-- 9. grant: the lease of a slot that has ended. The UPDATE checks the lease again, because it
	-- may have been extended at the last moment.
	IF @ends <= @clock
		UPDATE {table} SET lock_id = @token,
			@fence = fence = CASE WHEN fence + 1 > @clock_us THEN fence + 1 ELSE @clock_us END,
			acquired_at = @clock, renewed_at = @clock, expires_at = @until, released_at = NULL, revoked = NULL,
			host_name = @host, process_id = @pid, process_tag = @tag, @slot = slot,
			@before = expires_at -- the old value
		WHERE resource_name = @resource AND slot = @first AND expires_at <= SYSUTCDATETIME();
	-- This is a new slot, or one whose row was deleted.
	IF @slot IS NULL
	BEGIN
		SELECT @slot = MIN(free.slot) FROM (
			SELECT 0 AS slot UNION ALL SELECT slot + 1 FROM {table} WITH (NOLOCK)
				WHERE resource_name = @resource AND slot >= 0
		) AS free
		WHERE free.slot < @n AND NOT EXISTS (SELECT 1 FROM {table} AS t WITH (NOLOCK) WHERE t.resource_name = @resource
			AND t.slot = free.slot);
		IF @slot IS NOT NULL
		BEGIN
			SET @fence = @clock_us;
			INSERT INTO {table} (resource_name, slot, lock_id, fence, acquired_at, renewed_at, expires_at, host_name,
				process_id, process_tag)
			VALUES (@resource, @slot, @token, @fence, @clock, @clock, @until, @host, @pid, @tag);
		END
	END
	IF @slot IS NULL
		SET @reason = 'full';
	ELSE
	BEGIN
		SET @reason = 'ok';
		-- 10. record: count the start of the tick, and store the declared slots.
		IF @tick IS NOT NULL
			SELECT @claimer = @host, @claimer_pid = @pid, @claimer_tag = @tag;
		IF @head IS NULL
			INSERT INTO {table} (resource_name, slot, tick, tick_starts, tick_schedule, slots, host_name,
				process_id, process_tag)
			VALUES (@resource, -1, @tick, 1, @schedule, @slots, @claimer, @claimer_pid, @claimer_tag);
		ELSE IF @tick IS NOT NULL OR @declared IS NULL OR @declared <> @slots
			UPDATE {table} SET tick = COALESCE(@tick, tick), slots = @slots,
				tick_starts = CASE WHEN @tick IS NULL THEN tick_starts
					WHEN @tick = tick THEN tick_starts + 1 ELSE 1 END,
				tick_schedule = CASE WHEN @tick IS NULL THEN tick_schedule ELSE @schedule END,
				asked_schedule = CASE WHEN @tick IS NULL OR tick_schedule = @schedule THEN asked_schedule END,
				host_name = @claimer, process_id = @claimer_pid, process_tag = @claimer_tag
			WHERE resource_name = @resource AND slot = -1;
	END
END
-- A lease that was renewed while the clock was ahead would last too long. Its holder trusts it for
-- one TTL from a moment in the past, so ending it one TTL from now is safe. Each refusal looks at
-- the lease that ends last.
IF @reason IN ('full', 'tick_held')
	UPDATE {table} WITH (READPAST) SET renewed_at = @clock,
		expires_at = DATEADD(MILLISECOND,
			(DATEDIFF_BIG(MICROSECOND, renewed_at, expires_at) + 999) / 1000, @clock)
	WHERE resource_name = @resource AND renewed_at > @latest AND expires_at > @clock AND slot = (
		SELECT TOP (1) slot FROM {table} WITH (INDEX (ends), READCOMMITTEDLOCK, READPAST)
		WHERE resource_name = @resource AND slot >= 0 ORDER BY expires_at DESC);
COMMIT TRANSACTION;
SELECT @reason, COALESCE(@slot, 0), COALESCE(@fence, 0), COALESCE(@declared, 0),
	CASE WHEN @succeeded IS NULL THEN 0 WHEN @succeeded >= @clock THEN 1
		ELSE DATEDIFF_BIG(MICROSECOND, @succeeded, @clock) END,
	CASE WHEN @reason IN ('full', 'tick_taken') THEN COALESCE(@who, N'') ELSE N'' END,
	CASE WHEN @reason IN ('full', 'tick_taken') THEN COALESCE(@who_pid, 0) ELSE 0 END,
	CASE WHEN @reason IN ('full', 'tick_taken') THEN COALESCE(@who_tag, N'') ELSE N'' END,
	-- if all rows are locked, the values are unknown
	CASE @reason WHEN 'full' THEN COALESCE(DATEDIFF_BIG(MICROSECOND, @since, @clock), 0) ELSE 0 END,
	CASE WHEN @reason = 'full' THEN COALESCE(DATEDIFF_BIG(MICROSECOND, @clock, @ends), 0)
		WHEN @reason = 'paused' AND @paused > @clock THEN DATEDIFF_BIG(MICROSECOND, @clock, @paused) ELSE 0 END,
	CASE WHEN @before > '1970-01-01' THEN 1 ELSE 0 END,
	COALESCE(@version, 0), CASE WHEN @limit > 0 THEN @limit ELSE 0 END, COALESCE(@origin, N'');
