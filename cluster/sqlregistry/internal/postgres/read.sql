{columns}
FROM (
	SELECT * FROM {table} WHERE sort = 'host' AND detail IS NOT NULL OR sort = 'lease'
	UNION ALL
	SELECT * FROM (SELECT * FROM {table} WHERE sort = 'event' AND happened_at IS NOT NULL
		ORDER BY happened_at DESC, id DESC LIMIT {events}) AS e
	UNION ALL
	SELECT * FROM (SELECT * FROM {table} WHERE sort = 'run' AND happened_at IS NOT NULL
		ORDER BY happened_at DESC, id DESC LIMIT {runs}) AS r
) AS t
