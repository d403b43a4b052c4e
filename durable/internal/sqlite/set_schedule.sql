-- ?1 name; ?2 how long it is paused, 0: not any more; ?3 who, ?4 why
INSERT INTO {schedules} (name, paused_until, paused_by, paused_note, created_at)
VALUES (?1, CASE WHEN ?2 > 0 THEN {now} + ?2 END, CASE WHEN ?2 > 0 THEN ?3 ELSE '' END,
	CASE WHEN ?2 > 0 THEN ?4 ELSE '' END, {now})
ON CONFLICT (name) DO UPDATE SET paused_until = excluded.paused_until, paused_by = excluded.paused_by,
	paused_note = excluded.paused_note
