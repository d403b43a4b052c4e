-- ?1: the rows as JSON, with their times in microseconds ago.
INSERT INTO {table} AS t (sort, id, lock_name, node_id, machine, pid, holder_id, kind, slot, slots, fence, grant_id,
	acquired_at, renewed_at, expires_at, released_at, happened_at, ttl, up_for, data, detail)
SELECT value ->> 'sort', value ->> 'id', value ->> 'lock_name', value ->> 'node_id', value ->> 'machine',
	value ->> 'pid', value ->> 'holder_id', value ->> 'kind', value ->> 'slot', value ->> 'slots', value ->> 'fence',
	value ->> 'grant_id', {now} - (value ->> 'acquired'), {now} - (value ->> 'renewed'), {now} - (value ->> 'expires'),
	{now} - (value ->> 'released'), {now} - (value ->> 'happened'), value ->> 'ttl', value ->> 'up_for',
	value ->> 'data', value ->> 'detail'
FROM json_each(?1)
WHERE value ->> 'sort' <> 'host' OR value ->> 'detail' IS NOT NULL
	OR EXISTS (SELECT 1 FROM {table} AS h WHERE h.sort = 'host' AND h.id = value ->> 'id')
ON CONFLICT (sort, id) DO UPDATE SET
	lock_name = excluded.lock_name, node_id = excluded.node_id, machine = excluded.machine, pid = excluded.pid,
	holder_id = excluded.holder_id, kind = excluded.kind, slot = excluded.slot, slots = excluded.slots,
	fence = excluded.fence, grant_id = excluded.grant_id, acquired_at = excluded.acquired_at,
	renewed_at = excluded.renewed_at, expires_at = excluded.expires_at, released_at = excluded.released_at,
	ttl = excluded.ttl, up_for = excluded.up_for, data = excluded.data, detail = coalesce(excluded.detail, t.detail)
WHERE CASE t.sort
	WHEN 'host' THEN excluded.up_for >= t.up_for
	WHEN 'lease' THEN CASE
		WHEN t.machine = excluded.machine AND t.pid = excluded.pid AND t.holder_id = excluded.holder_id
			AND t.grant_id = excluded.grant_id THEN t.released_at IS NULL
		WHEN t.fence <> 0 AND excluded.fence <> 0 THEN excluded.fence > t.fence
		-- It is live and the row is over: the row may be a late record of an earlier holder.
		WHEN excluded.released_at IS NULL AND excluded.expires_at > {now}
			AND (t.released_at IS NOT NULL OR t.expires_at <= {now}) THEN 1
		ELSE excluded.acquired_at > t.acquired_at END
	ELSE 0 END -- events and runs are written once
