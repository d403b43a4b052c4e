-- $1, $2 and $3 are the limits in milliseconds for a lock wait, a statement and the transaction.
-- They bound a client that stops between statements. Before Postgres 17 (transaction_timeout) they
-- do not bound a client that is cut off while it sends a statement: its transaction would keep its
-- locks until TCP gives up the connection, by default after two hours. The TCP settings reduce that
-- to 11 s.
--
-- The search_path excludes names that other users have created. With synchronous_commit off, the
-- server could lose a claim in a crash and grant it again under the same number. Times, intervals
-- and bytes are sent as text in the form that drivers read. The planner settings make statements
-- use indexes, even if statistics were taken while a table was empty. Compiling a plan would take
-- longer than executing it.
SELECT pg_catalog.set_config('lock_timeout', $1::text, true),
	pg_catalog.set_config('statement_timeout', $2::text, true),
	pg_catalog.set_config('idle_in_transaction_session_timeout', $2::text, true),
	CASE WHEN pg_catalog.current_setting('server_version_num')::integer >= 170000
		THEN pg_catalog.set_config('transaction_timeout', $3::text, true) END,
	pg_catalog.set_config('tcp_keepalives_idle', '5', true),
	pg_catalog.set_config('tcp_keepalives_interval', '2', true),
	pg_catalog.set_config('tcp_keepalives_count', '3', true),
	pg_catalog.set_config('tcp_user_timeout', '11000', true),
	pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
	pg_catalog.set_config('synchronous_commit', CASE WHEN pg_catalog.current_setting('synchronous_commit')
		IN ('on', 'remote_apply') THEN pg_catalog.current_setting('synchronous_commit') ELSE 'on' END, true),
	pg_catalog.set_config('datestyle', 'ISO', true), pg_catalog.set_config('intervalstyle', 'postgres', true),
	pg_catalog.set_config('bytea_output', 'hex', true),
	pg_catalog.set_config('enable_indexscan', 'on', true), pg_catalog.set_config('enable_indexonlyscan', 'on', true),
	pg_catalog.set_config('enable_nestloop', 'on', true), pg_catalog.set_config('enable_seqscan', 'off', true),
	pg_catalog.set_config('enable_bitmapscan', 'off', true), pg_catalog.set_config('jit', 'off', true)
