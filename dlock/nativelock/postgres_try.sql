-- Takes the first free lock. The lock function is called row by row until LIMIT ends the scan.
-- OFFSET 0 keeps the planner from calling the function elsewhere. If the session is not ours, the
-- statement tries no lock.
--
-- $1 session, $2 keys, $3 how long the session may stay idle once it holds a lock
WITH me AS MATERIALIZED (
	SELECT {session} AS session
), taken AS MATERIALIZED (
	SELECT CASE WHEN me.session = $1::text THEN (
		SELECT keys.i FROM (
			SELECT u.key, u.i FROM unnest(string_to_array($2::text, ',')::bigint[]) WITH ORDINALITY AS u(key, i)
				ORDER BY u.i OFFSET 0
		) AS keys
		WHERE pg_try_advisory_lock(keys.key) LIMIT 1
	) END AS i FROM me
)
SELECT me.session, CASE WHEN taken.i IS NULL THEN NULL
	WHEN set_config({idle}, $3::text, false) IS NOT NULL THEN (taken.i - 1)::text END
FROM me, taken
