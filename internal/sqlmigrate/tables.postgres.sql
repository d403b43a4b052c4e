-- $1 contains the names of the tables as JSON. The result is one row: the catalog entry of each
-- table, the encoding, and the tables from which row level security may hide rows from this user.
-- It may hide rows if it is active and either no policy shows the user all rows, or a policy
-- restricts them. Names are qualified, because another user may have functions of the same name in
-- the search path.
SELECT pg_catalog.json_agg(pg_catalog.json_build_object('name'::text, t.name,
		'kind'::text, CASE WHEN c.relkind IS NULL OR c.relkind NOT IN ('r', 'p') THEN ''::text
			WHEN c.relpersistence = 'p' THEN 'table'::text ELSE 'unlogged'::text END,
		'columns'::text, (SELECT pg_catalog.json_object_agg(a.attname::text, y.typname::text)
			FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_type AS y ON y.oid = a.atttypid
			WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
		'key'::text, (SELECT pg_catalog.json_agg(a.attname::text ORDER BY k.n) FROM pg_catalog.pg_index AS i
				CROSS JOIN LATERAL pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, n)
				JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
			WHERE i.indrelid = c.oid AND i.indisprimary),
		'indexes'::text, (SELECT pg_catalog.json_agg(x.relname::text)
			FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS x ON x.oid = i.indexrelid
			WHERE i.indrelid = c.oid AND i.indisvalid)))::text,
	pg_catalog.current_setting('server_encoding'),
	coalesce(pg_catalog.string_agg(t.name, ', '::text ORDER BY t.name) FILTER (
		WHERE pg_catalog.row_security_active(c.oid) AND (
			NOT EXISTS (SELECT FROM pg_catalog.pg_policy AS p
				WHERE p.polrelid = c.oid AND p.polpermissive AND p.polcmd = '*'
				AND pg_catalog.pg_get_expr(p.polqual, p.polrelid) = 'true'
				AND coalesce(pg_catalog.pg_get_expr(p.polwithcheck, p.polrelid), 'true') = 'true'
				AND EXISTS (SELECT FROM pg_catalog.unnest(p.polroles) AS r(role)
					WHERE r.role = 0 OR pg_catalog.pg_has_role(r.role, 'USAGE'::text)))
			OR EXISTS (SELECT FROM pg_catalog.pg_policy AS p WHERE p.polrelid = c.oid AND NOT p.polpermissive))), '')
FROM pg_catalog.json_array_elements_text($1::text::json) AS t(name)
	LEFT JOIN pg_catalog.pg_class AS c ON c.oid = pg_catalog.to_regclass(t.name)::oid
