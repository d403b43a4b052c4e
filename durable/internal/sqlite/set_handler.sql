-- ?1 name; ?2 how long it is paused, 0: not any more; ?3 the override, -1: none; nothing leaves
-- what is there; ?4 who, ?5 why
INSERT INTO {handlers} AS h (name, paused_until, paused_by, paused_note, override, override_by, override_note)
VALUES (?1,
	CASE WHEN ?2 > 0 THEN {now} + ?2 END, CASE WHEN ?2 > 0 THEN ?4 ELSE '' END, CASE WHEN ?2 > 0 THEN ?5 ELSE '' END,
	CASE WHEN ?3 >= 0 THEN ?3 END, CASE WHEN ?3 IS NULL THEN '' ELSE ?4 END, CASE WHEN ?3 IS NULL THEN '' ELSE ?5 END)
ON CONFLICT (name) DO UPDATE SET
	paused_until = CASE WHEN ?2 IS NULL THEN h.paused_until ELSE excluded.paused_until END,
	paused_by = CASE WHEN ?2 IS NULL THEN h.paused_by ELSE excluded.paused_by END,
	paused_note = CASE WHEN ?2 IS NULL THEN h.paused_note ELSE excluded.paused_note END,
	override = CASE WHEN ?3 IS NULL THEN h.override ELSE excluded.override END,
	override_by = CASE WHEN ?3 IS NULL THEN h.override_by ELSE excluded.override_by END,
	override_note = CASE WHEN ?3 IS NULL THEN h.override_note ELSE excluded.override_note END
