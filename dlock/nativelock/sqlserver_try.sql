-- Takes the first free lock. Never run against a server.
--
-- @p1 session, @p2 the concatenated names of @p3 characters each, @p4 the number of names
SET NOCOUNT ON;
DECLARE @i int = 0, @result int = -1, @name nvarchar(255), @taken nvarchar(11) = NULL;
IF CAST(@@SPID AS nvarchar(11)) = @p1
BEGIN
	WHILE @result = -1 AND @i < @p4 -- -1 means held by another session
	BEGIN
		SET @name = SUBSTRING(@p2, @i * @p3 + 1, @p3);
		EXEC @result = sys.sp_getapplock @Resource = @name, @LockMode = 'Exclusive',
			@LockOwner = 'Session', @LockTimeout = 0;
		IF @result >= 0 SET @taken = CAST(@i AS nvarchar(11));
		SET @i = @i + 1;
	END;
	IF @result < -1
	BEGIN
		RAISERROR (N'tickslot: sp_getapplock answered %d', 16, 1, @result);
		RETURN;
	END;
END;
SELECT CAST(@@SPID AS nvarchar(11)), @taken;
