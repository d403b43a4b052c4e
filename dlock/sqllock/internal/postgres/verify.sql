-- Names are qualified: another user may have functions of the same name in the search path.
SELECT pg_catalog.version(),
	(SELECT pg_catalog.count(*) FROM pg_catalog.json_array_elements_text($1::text::json) AS f(name)
		WHERE pg_catalog.to_regproc(f.name) IS NULL)
