-- $1: the names of handlers, as JSON, with their limits. Rows are written in the order of their
-- names, so that workers who do so at once wait for each other, and do not lock each other out.
INSERT INTO {handlers} AS h (name, max_concurrency, seen_at)
SELECT x.name, x.max_concurrency, clock_timestamp()
FROM (SELECT name, max_concurrency FROM json_to_recordset($1::text::json) AS j(name text, max_concurrency integer)
	UNION ALL SELECT '', 0) AS x
ORDER BY x.name COLLATE "C"
ON CONFLICT (name) DO UPDATE SET max_concurrency = excluded.max_concurrency, seen_at = excluded.seen_at
