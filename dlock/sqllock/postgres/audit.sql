SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, current_setting('fsync'), pg_is_in_recovery(),
	current_setting('transaction_read_only') = 'on', current_setting('transaction_isolation'),
	current_user::text, coalesce((SELECT rolsuper FROM pg_roles WHERE rolname = current_user), false)
