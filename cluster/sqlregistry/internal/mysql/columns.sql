SELECT {hint} t.sort, t.id, t.lock_name, CAST(t.machine AS BINARY), t.pid, CAST(t.holder_id AS BINARY),
	CAST(t.kind AS BINARY),
	t.slot, t.slots, t.fence, CAST(t.grant_id AS BINARY),
	TIMESTAMPDIFF(MICROSECOND, t.acquired_at, UTC_TIMESTAMP(6)),
	TIMESTAMPDIFF(MICROSECOND, t.renewed_at, UTC_TIMESTAMP(6)),
	TIMESTAMPDIFF(MICROSECOND, t.expires_at, UTC_TIMESTAMP(6)),
	TIMESTAMPDIFF(MICROSECOND, t.released_at, UTC_TIMESTAMP(6)),
	TIMESTAMPDIFF(MICROSECOND, t.happened_at, UTC_TIMESTAMP(6)),
	t.ttl, t.up_for, CAST(t.data AS BINARY), CAST(t.detail AS BINARY)
