-- $1: schedules as JSON, $2: whether to take over those that have another spec. A row that has been
-- seen within half a minute is not written again: with many workers it would be all the time. One
-- that was seen in the future is of a clock that was ahead: its next tick is planned again, and a
-- pause that was over then stays over.
INSERT INTO {schedules} AS s (name, handler, spec, description, seen_at)
SELECT x.name, x.handler, x.spec, x.description, clock_timestamp()
FROM json_to_recordset($1::text::json) AS x(name text, handler text, spec text, description text)
LEFT JOIN {schedules} AS is_there ON is_there.name = x.name COLLATE "C"
WHERE $2::boolean OR is_there.name IS NULL OR is_there.spec = ''
	OR is_there.spec = x.spec COLLATE "C" AND (is_there.seen_at < clock_timestamp() - interval '30 s'
		OR is_there.seen_at > clock_timestamp() + {ahead})
ORDER BY x.name COLLATE "C"
ON CONFLICT (name) DO UPDATE SET spec = excluded.spec, seen_at = excluded.seen_at,
	next_spec = CASE WHEN s.seen_at > excluded.seen_at + {ahead} THEN '' ELSE s.next_spec END,
	paused_at = CASE WHEN s.seen_at > excluded.seen_at + {ahead} AND s.paused_until > excluded.seen_at
		AND s.paused_until <= s.seen_at THEN NULL ELSE s.paused_at END,
	paused_until = CASE WHEN s.seen_at > excluded.seen_at + {ahead} AND s.paused_until > excluded.seen_at
		AND s.paused_until <= s.seen_at THEN NULL ELSE s.paused_until END,
	handler = CASE WHEN $2::boolean OR s.spec = '' THEN excluded.handler ELSE s.handler END,
	description = CASE WHEN $2::boolean OR s.spec = '' THEN excluded.description ELSE s.description END
WHERE $2::boolean OR s.spec IN ('', excluded.spec)
