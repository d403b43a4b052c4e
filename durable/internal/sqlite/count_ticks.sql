UPDATE {schedules} SET ticks_queued = ticks_queued + ?2, ticks_coalesced = ticks_coalesced + ?3 WHERE name = ?1
