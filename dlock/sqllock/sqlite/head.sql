-- Counts a start of tick ?2, which is not older than the latest, or null; and declares ?3 slots.
INSERT INTO {table} (resource_name, slot, tick, tick_starts, slots)
VALUES (?1, -1, ?2, 1, ?3)
ON CONFLICT (resource_name, slot) DO UPDATE SET
	tick = coalesce(excluded.tick, tick),
	tick_starts = CASE WHEN excluded.tick IS NULL THEN tick_starts WHEN excluded.tick = tick THEN tick_starts + 1 ELSE 1 END,
	slots = excluded.slots
