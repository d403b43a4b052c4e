-- ?1 name, ?2 handler, ?3 spec, ?4 text, ?5 whether to take over a row with another spec. One that
-- was seen in the future is of a clock that was ahead: its next tick is planned again, and a pause
-- that was over then stays over.
INSERT INTO {schedules} AS s (name, handler, spec, text, seen_at, created_at)
VALUES (?1, ?2, ?3, ?4, {now}, {now})
ON CONFLICT (name) DO UPDATE SET handler = excluded.handler, spec = excluded.spec, text = excluded.text,
	seen_at = excluded.seen_at,
	next_spec = CASE WHEN s.seen_at > excluded.seen_at + {ahead} THEN '' ELSE s.next_spec END,
	paused_at = CASE WHEN s.seen_at > excluded.seen_at + {ahead} AND s.paused_until > excluded.seen_at
		AND s.paused_until <= s.seen_at THEN NULL ELSE s.paused_at END,
	paused_until = CASE WHEN s.seen_at > excluded.seen_at + {ahead} AND s.paused_until > excluded.seen_at
		AND s.paused_until <= s.seen_at THEN NULL ELSE s.paused_until END
WHERE ?5 OR s.spec IN ('', excluded.spec)
