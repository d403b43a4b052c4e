DECLARE @held nvarchar(max) = (
	SELECT slot, COALESCE(host_name, N'') AS host, COALESCE(process_id, 0) AS pid,
		COALESCE(process_tag, N'') AS id, fence,
		DATEDIFF_BIG(MICROSECOND, acquired_at, SYSUTCDATETIME()) AS held_for,
		DATEDIFF_BIG(MICROSECOND, renewed_at, SYSUTCDATETIME()) AS renewed_ago,
		DATEDIFF_BIG(MICROSECOND, SYSUTCDATETIME(), expires_at) AS expires_in
	FROM {table} WHERE resource_name = @p1 AND slot >= 0 AND expires_at > SYSUTCDATETIME()
	ORDER BY slot FOR JSON PATH);
SELECT COALESCE(@held, N'[]');
