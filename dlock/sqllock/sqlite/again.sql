-- Makes the lease that token ?2 has last ?3 from now, unless it was revoked.
UPDATE {table} SET expires_at = CASE WHEN revoked IS NULL THEN {now} + ?3 ELSE expires_at END
WHERE lock_id = ?2 AND +resource_name = ?1 AND slot >= 0 AND expires_at >= {now}
RETURNING slot, fence
