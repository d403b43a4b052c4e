-- The names are in hex, here and in the answer.
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
