-- Names are qualified: another user may have functions of the same name in the search path.
SELECT
	coalesce((SELECT c.relkind::text FROM pg_catalog.pg_class AS c
		WHERE c.oid = pg_catalog.to_regclass($1::text)::oid), ''),
	coalesce((SELECT pg_catalog.json_object_agg(a.attname::text, t.typname::text) FROM pg_catalog.pg_attribute AS a
		JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
		WHERE a.attrelid = pg_catalog.to_regclass($1::text)::oid AND a.attnum > 0 AND NOT a.attisdropped)::text, '{}'),
	coalesce((SELECT pg_catalog.string_agg(a.attname::text, ',' ORDER BY a.attname DESC) FROM pg_catalog.pg_index AS i
		JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
		WHERE i.indrelid = pg_catalog.to_regclass($1::text)::oid AND i.indisprimary), ''),
	(SELECT pg_catalog.count(*) FROM pg_catalog.pg_index AS i
		WHERE i.indrelid = pg_catalog.to_regclass($1::text)::oid AND i.indisvalid
		AND (i.indexrelid = pg_catalog.to_regclass($2::text)::oid
			OR i.indexrelid = pg_catalog.to_regclass($3::text)::oid)),
	pg_catalog.current_setting('server_encoding')
