-- Makes the lease that token ?2 has last ?3 from now, also if it was revoked: whoever asked trusts it for that long. The first heartbeat tells him.
UPDATE {table} SET expires_at = {now} + ?3
WHERE lock_id = ?2 AND +resource_name = ?1 AND slot >= 0 AND expires_at >= {now}
RETURNING slot, fence
