{columns}
FROM (
	SELECT * FROM {table} WHERE sort IN ({host}, {lease})
	UNION ALL
	SELECT * FROM (SELECT TOP ({events}) * FROM {table} WHERE sort = {event} ORDER BY happened_at DESC, id DESC) AS e
	UNION ALL
	SELECT * FROM (SELECT TOP ({runs}) * FROM {table} WHERE sort = {run} ORDER BY happened_at DESC, id DESC) AS r
) AS t;
