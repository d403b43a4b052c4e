-- Returns the documented privileges that the role lacks: on the table, and on functions.
SELECT
	coalesce((SELECT pg_catalog.string_agg(r.name, ', '::text)
		FROM pg_catalog.unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS r(name)
		WHERE NOT pg_catalog.has_table_privilege(pg_catalog.to_regclass($1::text), r.name)), ''),
	coalesce((SELECT pg_catalog.string_agg(f.name, ', '::text)
		FROM pg_catalog.json_array_elements_text($2::text::json) AS f(name)
		WHERE NOT pg_catalog.has_function_privilege(pg_catalog.to_regproc(f.name), 'EXECUTE')), '')
