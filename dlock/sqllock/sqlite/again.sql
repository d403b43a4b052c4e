-- Makes the lease that token ?3 has last ?4 from now.
UPDATE {table} SET expires_at = {now} + ?4
WHERE lock_id = ?3 AND +resource_name = ?1 AND slot >= 0 AND slot < ?2 AND expires_at >= {now}
RETURNING slot, fence
