-- Moves a schedule forward, before its runs are inserted, if it still is as it was planned: ?1
-- name, ?2 spec, ?3 next_spec, ?4 next_due_at and ?5 whether it was paused then; ?6 the next tick,
-- ?7 the latest one accounted for, ?8 to ?10 coalesced, skipped, paused.
UPDATE {schedules} SET next_spec = spec, next_due_at = ?6, last_due_at = coalesce(?7, last_due_at),
	ticks_coalesced = ticks_coalesced + ?8, ticks_skipped = ticks_skipped + ?9, ticks_paused = ticks_paused + ?10
WHERE name = ?1 AND spec = ?2 AND next_spec = ?3 AND next_due_at IS ?4
	AND coalesce(paused_until > {now}, 0) = ?5
