-- What the role lacks of the rights that the package comment lists.
SELECT
	coalesce((SELECT string_agg(r, ', ') FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS r
		WHERE NOT has_table_privilege(to_regclass($1::text), r)), ''),
	coalesce((SELECT string_agg(f, ', ') FROM unnest(ARRAY[$2::text, $3::text, $4::text, $5::text, $6::text]) AS f
		WHERE NOT has_function_privilege(to_regproc(f), 'EXECUTE')), '')
