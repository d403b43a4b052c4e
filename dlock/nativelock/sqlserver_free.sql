-- Releases locks and returns, for each, whether this session held it. Never run against a server.
--
-- @p1 session, @p2 the concatenated names of @p3 characters each, @p4 the number of names
SET NOCOUNT ON;
DECLARE @i int = 0, @result int, @name nvarchar(255), @freed nvarchar(max) = NULL;
IF CAST(@@SPID AS nvarchar(11)) = @p1
BEGIN
	SET @freed = N'';
	WHILE @i < @p4
	BEGIN
		SET @name = SUBSTRING(@p2, @i * @p3 + 1, @p3);
		SET @result = -1;
		IF APPLOCK_MODE('public', @name, 'Session') = 'Exclusive' -- releasing a lock that is not held is an error
			EXEC @result = sys.sp_releaseapplock @Resource = @name, @LockOwner = 'Session';
		SET @freed = @freed + CASE WHEN @result >= 0 THEN N'1' ELSE N'0' END;
		SET @i = @i + 1;
	END;
END;
SELECT CAST(@@SPID AS nvarchar(11)), @freed;
