SELECT name, handler, spec, text, next_due_at, last_due_at, seen_at,
	CASE WHEN paused_until > {now} THEN paused_until END, paused_by, paused_note,
	ticks_queued, ticks_coalesced, ticks_skipped, ticks_paused
FROM {schedules} ORDER BY name
