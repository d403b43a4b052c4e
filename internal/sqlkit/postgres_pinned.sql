-- $1: how long to wait for a lock, $2 for a statement, and $3 for the transaction, in
-- milliseconds. They bound a client that stops between statements. Before Postgres 17
-- (transaction_timeout) they do not bound one that is cut off in the middle of what it sends: its
-- transaction would keep its locks until TCP gives the connection up, by default after two hours.
-- Here it does within 11 s. Names that another user has created in the search path are not ours. A
-- claim that a crash of the server forgets would be granted again, under the same number.
-- Instants, lengths and bytes that are sent as text have the form that drivers read. Rows are
-- found by indexes, whatever the statistics are of tables that are empty at night; and to compile
-- a plan would take longer than to execute it.
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
