-- ?1 name, ?2 handler, ?3 spec, ?4 text, ?5 whether to take over a row with another spec
INSERT INTO {schedules} AS s (name, handler, spec, text, seen_at, created_at)
VALUES (?1, ?2, ?3, ?4, {now}, {now})
ON CONFLICT (name) DO UPDATE SET handler = excluded.handler, spec = excluded.spec, text = excluded.text,
	seen_at = excluded.seen_at
WHERE ?5 OR s.spec IN ('', excluded.spec)
