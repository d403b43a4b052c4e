SELECT t.sort, t.id, t.lock_name, t.machine, t.pid, t.holder_id, t.kind, t.slot, t.slots, t.fence, t.grant_id,
	(extract(epoch FROM pg_catalog.statement_timestamp() - t.acquired_at) * 1000000)::bigint,
	(extract(epoch FROM pg_catalog.statement_timestamp() - t.renewed_at) * 1000000)::bigint,
	(extract(epoch FROM pg_catalog.statement_timestamp() - t.expires_at) * 1000000)::bigint,
	(extract(epoch FROM pg_catalog.statement_timestamp() - t.released_at) * 1000000)::bigint,
	(extract(epoch FROM pg_catalog.statement_timestamp() - t.happened_at) * 1000000)::bigint,
	t.ttl, t.up_for, t.data, t.detail
