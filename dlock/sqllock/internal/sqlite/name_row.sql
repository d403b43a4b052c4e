-- Counts a start of tick ?2 of schedule ?7 by the holder (?4, ?5, ?6), unless the tick is null, and
-- stores the declared number of slots ?3. The caller has checked that no later tick was claimed.
INSERT INTO {table} (resource_name, slot, tick, tick_starts, tick_schedule, slots, host_name, process_id, process_tag)
VALUES (?1, -1, ?2, 1, ?7, ?3, CASE WHEN ?2 IS NOT NULL THEN ?4 END, CASE WHEN ?2 IS NOT NULL THEN ?5 END,
	CASE WHEN ?2 IS NOT NULL THEN ?6 END)
ON CONFLICT (resource_name, slot) DO UPDATE SET
	tick = coalesce(excluded.tick, tick),
	tick_starts = CASE WHEN excluded.tick IS NULL THEN tick_starts
		WHEN excluded.tick = tick THEN tick_starts + 1 ELSE 1 END,
	tick_schedule = CASE WHEN excluded.tick IS NULL THEN tick_schedule ELSE excluded.tick_schedule END,
	asked_schedule = CASE WHEN excluded.tick IS NULL OR tick_schedule = excluded.tick_schedule THEN asked_schedule END,
	slots = excluded.slots,
	host_name = CASE WHEN excluded.tick IS NULL THEN host_name ELSE excluded.host_name END,
	process_id = CASE WHEN excluded.tick IS NULL THEN process_id ELSE excluded.process_id END,
	process_tag = CASE WHEN excluded.tick IS NULL THEN process_tag ELSE excluded.process_tag END
