-- tables: as JSON, name and columns with their types; indexes: their names as JSON. It answers
-- with what is wrong. Names are qualified: another user may have functions of the same name in
-- the search path.
SELECT CASE WHEN c.relkind IS NULL OR c.relkind NOT IN ('r', 'p')
		THEN 'there is no table ' || t.name || ', or this user may not use its schema'
		ELSE t.name || ' has no column ' || k.key || ' of type ' || k.value END
FROM pg_catalog.json_to_recordset({tables}::json) AS t(name text, columns json)
	LEFT JOIN pg_catalog.pg_class AS c ON c.oid = pg_catalog.to_regclass(t.name)::oid,
	LATERAL pg_catalog.json_each_text(CASE WHEN c.relkind IN ('r', 'p') THEN t.columns ELSE '{"":""}'::json END) AS k
WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_type AS y ON y.oid = a.atttypid
	WHERE a.attrelid = c.oid AND a.attname = k.key AND y.typname = k.value AND a.attnum > 0 AND NOT a.attisdropped)
UNION ALL
SELECT 'the index ' || i.value || ' is missing, or something else has that name'
FROM pg_catalog.json_array_elements_text({indexes}::json) AS i(value)
WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_index AS x
	WHERE x.indexrelid = pg_catalog.to_regclass(i.value)::oid AND x.indisvalid)
UNION ALL
SELECT 'the encoding of the database is ' || pg_catalog.current_setting('server_encoding') ||
	', which has not all characters: use one with UTF8'
WHERE pg_catalog.current_setting('server_encoding') <> 'UTF8'
