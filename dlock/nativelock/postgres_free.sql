-- Releases locks and returns, for each, whether this session held it.
--
-- $1 session, $2 keys, $3 how long the session may stay idle from now on
WITH me AS MATERIALIZED (
	SELECT {session} AS session
)
SELECT me.session, CASE WHEN me.session <> $1::text THEN NULL
	WHEN set_config({idle}, $3::text, false) IS NOT NULL THEN (
	SELECT string_agg(CASE WHEN pg_advisory_unlock(u.key) THEN '1' ELSE '0' END, '' ORDER BY u.i)
	FROM unnest(string_to_array($2::text, ',')::bigint[]) WITH ORDINALITY AS u(key, i)
) END
FROM me
