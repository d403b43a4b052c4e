SELECT
	coalesce((SELECT relpersistence::text FROM pg_class WHERE oid = to_regclass($1::text)), ''),
	coalesce((SELECT json_object_agg(attname, format_type(atttypid, NULL)) FROM pg_attribute
		WHERE attrelid = to_regclass($1::text) AND attnum > 0 AND NOT attisdropped), '{}')::text,
	coalesce((SELECT string_agg(attname, ',' ORDER BY attname) FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey)
		WHERE indrelid = to_regclass($1::text) AND indisprimary), ''),
	to_regclass($2::text) IS NOT NULL AND to_regclass($3::text) IS NOT NULL,
	to_regproc($4::text) IS NOT NULL AND to_regproc($5::text) IS NOT NULL AND to_regproc($6::text) IS NOT NULL
		AND to_regproc($7::text) IS NOT NULL AND to_regproc($8::text) IS NOT NULL
