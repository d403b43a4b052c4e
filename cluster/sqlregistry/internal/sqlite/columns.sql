SELECT t.sort, t.id, t.lock_name, t.machine, t.pid, t.holder_id, t.kind, t.slot, t.slots, t.fence, t.grant_id,
	{now} - t.acquired_at, {now} - t.renewed_at, {now} - t.expires_at, {now} - t.released_at, {now} - t.happened_at,
	t.ttl, t.up_for, t.data, t.detail
