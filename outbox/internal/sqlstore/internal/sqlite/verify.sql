-- tables: as JSON, name and columns with their types; indexes: their names as JSON. It answers
-- with what is wrong.
SELECT CASE WHEN s.type IS NULL THEN 'there is no table ' || (t.value ->> 'name')
	ELSE (t.value ->> 'name') || ' has no column ' || k.key || ' of type ' || k.value END
FROM json_each({tables}) AS t
	LEFT JOIN main.sqlite_schema AS s ON s.type = 'table' AND s.name = t.value ->> 'name' COLLATE NOCASE,
	json_each(t.value, '$.columns') AS k
WHERE NOT EXISTS (SELECT 1 FROM pragma_table_info(t.value ->> 'name', 'main') AS c
	WHERE c.name = k.key COLLATE NOCASE AND c.type = k.value COLLATE NOCASE)
	AND (s.type IS NOT NULL OR k.key = (SELECT f.key FROM json_each(t.value, '$.columns') AS f LIMIT 1))
UNION ALL
SELECT 'the index ' || i.value || ' is missing, or something else has that name'
FROM json_each({indexes}) AS i
WHERE NOT EXISTS (SELECT 1 FROM main.sqlite_schema AS s WHERE s.type = 'index' AND s.name = i.value COLLATE NOCASE)
