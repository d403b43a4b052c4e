-- name: verify
-- Names are qualified because another user may have functions with the same names in the search
-- path.
SELECT pg_catalog.version(),
	(SELECT pg_catalog.count(*) FROM pg_catalog.json_array_elements_text($1::text::json) AS f(name)
		WHERE pg_catalog.to_regproc(f.name) IS NULL)

-- name: audit
SELECT (extract(epoch FROM pg_catalog.clock_timestamp())::float8 * 1000000::float8)::bigint,
	pg_catalog.current_setting('fsync'), pg_catalog.pg_is_in_recovery(),
	pg_catalog.current_setting('transaction_read_only') = 'on'::text,
	pg_catalog.current_setting('default_transaction_isolation'),
	current_user::text,
	coalesce((SELECT r.rolsuper FROM pg_catalog.pg_roles AS r WHERE r.rolname = current_user), false)

-- name: privileges
-- Returns the documented privileges on the table and on functions that the role lacks.
SELECT
	coalesce((SELECT pg_catalog.string_agg(r.name, ', '::text)
		FROM pg_catalog.unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS r(name)
		WHERE NOT pg_catalog.has_table_privilege(pg_catalog.to_regclass($1::text), r.name)), ''),
	coalesce((SELECT pg_catalog.string_agg(f.name, ', '::text)
		FROM pg_catalog.json_array_elements_text($2::text::json) AS f(name)
		WHERE NOT pg_catalog.has_function_privilege(pg_catalog.to_regproc(f.name), 'EXECUTE')), '')

-- name: vacuum
-- Returns the oldest transaction that keeps VACUUM from removing row versions, if the role may see
-- it and it is older than $2 seconds, and the numbers of dead and live rows.
SELECT
	coalesce((SELECT
		pg_catalog.format('process %s (user %s, %s), open since %s', a.pid, a.usename, a.state, a.xact_start)
		FROM pg_catalog.pg_stat_activity AS a
		WHERE a.datname = pg_catalog.current_database() AND a.pid <> pg_catalog.pg_backend_pid()
			AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
			AND extract(epoch FROM pg_catalog.clock_timestamp() - a.xact_start)::float8 > $2::float8
		ORDER BY a.xact_start LIMIT 1), ''),
	coalesce((SELECT s.n_dead_tup FROM pg_catalog.pg_stat_all_tables AS s
		WHERE s.relid = pg_catalog.to_regclass($1::text)::oid), 0::bigint),
	coalesce((SELECT s.n_live_tup FROM pg_catalog.pg_stat_all_tables AS s
		WHERE s.relid = pg_catalog.to_regclass($1::text)::oid), 0::bigint)
