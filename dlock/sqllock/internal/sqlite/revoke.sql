-- Marks the lease of slot ?2 as revoked by the origin ?4 if it is held with fence ?3. The first
-- revocation wins: a second one changes nothing.
UPDATE {table} SET revoked = coalesce(revoked, ?4)
WHERE resource_name = ?1 AND slot = ?2 AND fence = ?3 AND expires_at >= {now}
