-- Moves a schedule forward, before its runs are inserted, if it still is as it was planned: ?1
-- name, ?2 spec, ?3 next_spec, ?4 next_due_at, ?5 paused_at, ?6 paused_until; ?7 the next tick, ?8
-- the latest one accounted for, ?9 to ?11 coalesced, skipped, paused.
UPDATE {schedules} SET next_spec = spec, next_due_at = ?7, last_due_at = coalesce(?8, last_due_at),
	ticks_coalesced = ticks_coalesced + ?9, ticks_skipped = ticks_skipped + ?10, ticks_paused = ticks_paused + ?11
WHERE name = ?1 AND spec = ?2 AND next_spec = ?3 AND next_due_at IS ?4 AND paused_at IS ?5 AND paused_until IS ?6
