SET NOCOUNT ON;
SET LOCK_TIMEOUT {wait};
DECLARE @now datetime2(6) = SYSUTCDATETIME();
SELECT t.sort, t.id, t.lock_name, t.machine, t.pid, t.holder_id, t.kind, t.slot, t.slots, t.fence, t.grant_id,
	DATEDIFF_BIG(MICROSECOND, t.acquired_at, @now), DATEDIFF_BIG(MICROSECOND, t.renewed_at, @now),
	DATEDIFF_BIG(MICROSECOND, t.expires_at, @now), DATEDIFF_BIG(MICROSECOND, t.released_at, @now),
	DATEDIFF_BIG(MICROSECOND, t.happened_at, @now), t.ttl, t.up_for, t.data, t.detail
