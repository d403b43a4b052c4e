WITH page AS MATERIALIZED (
	SELECT resource_name, slot FROM {table}
	WHERE (resource_name, slot) > (?1, ?2)
	ORDER BY resource_name, slot LIMIT ?3
)
SELECT (SELECT count(*) FROM page),
	coalesce((SELECT resource_name FROM page ORDER BY resource_name DESC, slot DESC LIMIT 1), ''),
	coalesce((SELECT slot FROM page ORDER BY resource_name DESC, slot DESC LIMIT 1), 0)
