{columns}
FROM (
	SELECT TOP ({runs_per_timer}) * FROM {table} WHERE sort = {run} AND lock_name = @p1
	ORDER BY happened_at DESC, id DESC
) AS t;
