{columns}
FROM (
	SELECT * FROM {table} WHERE sort IN ('host', 'lease')
	UNION ALL
	SELECT * FROM (SELECT * FROM {table} WHERE sort = 'event' AND happened_at IS NOT NULL
		ORDER BY happened_at DESC, id DESC LIMIT {events})
	UNION ALL
	SELECT * FROM (SELECT * FROM {table} WHERE sort = 'run' AND happened_at IS NOT NULL
		ORDER BY happened_at DESC, id DESC LIMIT {runs})
) AS t
