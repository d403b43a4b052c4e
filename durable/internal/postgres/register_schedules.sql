-- $1: schedules as JSON, $2: whether to take over those that have another spec.
INSERT INTO {schedules} AS s (name, handler, spec, description, seen_at)
SELECT x.name, x.handler, x.spec, x.description, clock_timestamp()
FROM json_to_recordset($1::text::json) AS x(name text, handler text, spec text, description text)
ORDER BY x.name COLLATE "C"
ON CONFLICT (name) DO UPDATE SET spec = excluded.spec, seen_at = excluded.seen_at,
	handler = CASE WHEN $2::boolean OR s.spec = '' THEN excluded.handler ELSE s.handler END,
	description = CASE WHEN $2::boolean OR s.spec = '' THEN excluded.description ELSE s.description END
WHERE $2::boolean OR s.spec IN ('', excluded.spec)
