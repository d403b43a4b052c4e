-- ?1 name; ?2 how long it is paused, 0: not any more; ?3 who, ?4 why. What is left of a pause that
-- is over says which ticks were of it, so that they are not caught up.
INSERT INTO {schedules} AS s (name, paused_at, paused_until, paused_by, paused_note, created_at)
VALUES (?1, {now}, {now} + max(0, ?2), ?3, ?4, {now})
ON CONFLICT (name) DO UPDATE SET
	paused_at = CASE WHEN ?2 <= 0 OR s.paused_until > excluded.paused_at THEN s.paused_at ELSE excluded.paused_at END,
	paused_until = CASE WHEN ?2 > 0 OR s.paused_until > excluded.paused_until THEN excluded.paused_until
		ELSE s.paused_until END,
	paused_by = excluded.paused_by, paused_note = excluded.paused_note
