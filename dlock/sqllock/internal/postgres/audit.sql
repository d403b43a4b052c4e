SELECT (extract(epoch FROM pg_catalog.clock_timestamp())::float8 * 1000000::float8)::bigint,
	pg_catalog.current_setting('fsync'), pg_catalog.pg_is_in_recovery(),
	pg_catalog.current_setting('transaction_read_only') = 'on'::text,
	pg_catalog.current_setting('default_transaction_isolation'),
	current_user::text,
	coalesce((SELECT r.rolsuper FROM pg_catalog.pg_roles AS r WHERE r.rolname = current_user), false)
