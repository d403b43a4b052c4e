-- Marks the session as ours. All settings end with the session. TCP keepalives let the server
-- detect a host that has vanished.
--
-- $1 mark
SELECT pg_backend_pid() || ' ' || set_config('tickslot.session', $1::text, false),
	CASE WHEN pg_is_in_recovery() THEN 'this server is a replica, which has locks of its own: connect to the primary'
		WHEN set_config('tcp_keepalives_idle', '5', false) || set_config('tcp_keepalives_interval', '2', false) ||
			set_config('tcp_keepalives_count', '5', false) IS NULL THEN '' END
