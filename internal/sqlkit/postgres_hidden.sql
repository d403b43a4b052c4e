-- $1: names of tables as JSON. It answers with those of which row level security may hide rows
-- from this user: it is active, and no policy lets the user have all rows, or one takes some away.
-- Names are qualified: another user may have functions of the same name in the search path.
SELECT coalesce(pg_catalog.string_agg(t.name, ', '::text ORDER BY t.name), '')
FROM pg_catalog.json_array_elements_text($1::text::json) AS t(name)
	JOIN pg_catalog.pg_class AS c ON c.oid = pg_catalog.to_regclass(t.name)::oid
WHERE pg_catalog.row_security_active(c.oid) AND (
	NOT EXISTS (SELECT FROM pg_catalog.pg_policy AS p WHERE p.polrelid = c.oid AND p.polpermissive AND p.polcmd = '*'
		AND pg_catalog.pg_get_expr(p.polqual, p.polrelid) = 'true'
		AND coalesce(pg_catalog.pg_get_expr(p.polwithcheck, p.polrelid), 'true') = 'true'
		AND EXISTS (SELECT FROM pg_catalog.unnest(p.polroles) AS r(role)
			WHERE r.role = 0 OR pg_catalog.pg_has_role(r.role, 'USAGE'::text)))
	OR EXISTS (SELECT FROM pg_catalog.pg_policy AS p WHERE p.polrelid = c.oid AND NOT p.polpermissive))
