-- Releases the given locks if this session holds them. Unlocking a lock that the session does not
-- hold would log a warning.
--
-- $1 session, $2 keys
WITH me AS MATERIALIZED (
	SELECT {session} AS session
)
SELECT me.session, CASE WHEN me.session = $1::text THEN (
	SELECT count(pg_advisory_unlock(u.key))::text
	FROM unnest(string_to_array($2::text, ',')::bigint[]) AS u(key)
	WHERE u.key IN (
		SELECT (l.classid::bigint << 32) | l.objid::bigint FROM pg_locks AS l
		WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted AND l.pid = pg_backend_pid()
			AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()))
) END
FROM me
