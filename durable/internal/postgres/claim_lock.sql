-- $1: the handlers of the worker as JSON, $2: its limit for all of them together. It locks the rows
-- of the limits that they have, in the order of their names. What is counted afterwards, by a
-- statement of its own, has all that was committed by those who had them before.
SELECT count(*) FROM (
	SELECT FROM {handlers} AS h
	LEFT JOIN json_to_recordset($1::text::json) AS x(name text, max_concurrency integer) ON x.name = h.name COLLATE "C"
	WHERE CASE h.name WHEN '' THEN $2::integer > 0 ELSE x.max_concurrency > 0 END
		OR h.override IS NOT NULL AND (h.name = '' OR x.name IS NOT NULL)
	ORDER BY h.name
	FOR UPDATE OF h
) AS locked
