-- Extends the lease that token ?2 has to ?3 from now, even if it was revoked: the caller trusts the
-- answer for that long, and its first heartbeat reports the revocation.
UPDATE {table} SET expires_at = {now} + ?3, renewed_at = {now}
WHERE lock_id = ?2 AND +resource_name = ?1 AND slot >= 0 AND expires_at >= {now}
RETURNING slot, fence
