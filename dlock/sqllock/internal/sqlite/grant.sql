-- Grants free slot ?2 to token ?3 for ?4.
INSERT INTO {table} (resource_name, slot, lock_id, fence, acquired_at, renewed_at, expires_at, host_name, process_id,
	process_tag)
VALUES (?1, ?2, ?3, {now}, {now}, {now}, {now} + ?4, ?5, ?6, ?7)
ON CONFLICT (resource_name, slot) DO UPDATE SET
	lock_id = excluded.lock_id, fence = max(fence + 1, excluded.fence),
	acquired_at = excluded.acquired_at, renewed_at = excluded.renewed_at, expires_at = excluded.expires_at,
	released_at = NULL, revoked = NULL,
	host_name = excluded.host_name, process_id = excluded.process_id, process_tag = excluded.process_tag
RETURNING slot, fence
