-- Makes schedule ?2 known since ?3, before a tick of it was claimed.
INSERT INTO {table} (resource_name, slot, asked_schedule, asked_at) VALUES (?1, -1, ?2, ?3)
ON CONFLICT (resource_name, slot) DO UPDATE SET
	asked_schedule = excluded.asked_schedule, asked_at = excluded.asked_at
