-- Marks the lease of slot @p2 as revoked by the origin @p4 if it is held with fence @p3. The first
-- revocation wins: a second one changes nothing.
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT {wait};
UPDATE {table} SET revoked = COALESCE(revoked, @p4)
WHERE resource_name = @p1 AND slot = @p2 AND fence = @p3 AND expires_at > SYSUTCDATETIME();
SELECT @@ROWCOUNT;
