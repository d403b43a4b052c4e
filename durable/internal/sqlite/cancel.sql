UPDATE {runs} SET canceled_by = ?2, canceled_note = ?3,
	finished_at = CASE WHEN state = 'queued' THEN {now} ELSE finished_at END,
	state = CASE WHEN state = 'queued' THEN 'canceled' ELSE state END
WHERE id = ?1
