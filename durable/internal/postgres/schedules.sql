SELECT s.name, s.handler, s.spec, s.description, s.next_due_at, s.last_due_at, s.seen_at,
	CASE WHEN s.paused_until > clock_timestamp() THEN s.paused_until END, coalesce(s.paused_by, ''),
	coalesce(s.paused_note, ''), s.ticks_queued, s.ticks_coalesced, s.ticks_skipped, s.ticks_paused
FROM {schedules} AS s ORDER BY s.name
