-- $1: how long to wait for a lock, and $2 for a statement, in milliseconds. A client that stops in
-- the middle of what it sends holds its locks no longer than that. Names that another user has
-- created in the search path are not ours. A claim that a crash of the server forgets would be
-- granted again, under the same number. Instants and bytes that are sent as text have the form that
-- pgx reads. Rows are found by indexes, whatever the statistics are of tables that are empty at
-- night; and to compile a plan would take longer than to execute it.
SELECT pg_catalog.set_config('lock_timeout', $1::text, true),
	pg_catalog.set_config('statement_timeout', $2::text, true),
	pg_catalog.set_config('idle_in_transaction_session_timeout', $2::text, true),
	pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
	pg_catalog.set_config('synchronous_commit', CASE WHEN pg_catalog.current_setting('synchronous_commit')
		IN ('on', 'remote_apply') THEN pg_catalog.current_setting('synchronous_commit') ELSE 'on' END, true),
	pg_catalog.set_config('datestyle', 'ISO', true), pg_catalog.set_config('bytea_output', 'hex', true),
	pg_catalog.set_config('enable_seqscan', 'off', true), pg_catalog.set_config('enable_bitmapscan', 'off', true),
	pg_catalog.set_config('jit', 'off', true)
