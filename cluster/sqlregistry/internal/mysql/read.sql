{bounded} {columns}
FROM (
	SELECT * FROM {table} WHERE sort = 'host' AND detail IS NOT NULL
	UNION ALL
	SELECT * FROM {table} WHERE sort = 'lease'
	UNION ALL
	SELECT * FROM (SELECT * FROM {table} WHERE sort = 'event' ORDER BY happened_at DESC, id DESC LIMIT {events}) AS e
	UNION ALL
	SELECT * FROM (SELECT * FROM {table} WHERE sort = 'run' ORDER BY happened_at DESC, id DESC LIMIT {runs}) AS r
) AS t
LIMIT 18446744073709551615 -- all, whatever sql_select_limit is
