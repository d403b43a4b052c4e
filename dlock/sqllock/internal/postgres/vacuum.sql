-- Returns the oldest transaction that keeps VACUUM from removing row versions, as far as the role
-- may see it, if it is older than $2 seconds; and the numbers of dead and of live rows.
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
