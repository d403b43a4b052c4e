-- $1: the rows as JSON, in the order of the primary key, with their times in microseconds ago.
-- $2: the id of the host whose heartbeat is written.
WITH written AS (
	INSERT INTO {table} AS t (sort, id, lock_name, node_id, machine, pid, holder_id, kind, slot, slots, fence, grant_id,
		acquired_at, renewed_at, expires_at, released_at, happened_at, ttl, up_for, data, detail)
	SELECT x.sort, x.id, x.lock_name, x.node_id, x.machine, x.pid, x.holder_id, x.kind, x.slot, x.slots, x.fence,
		x.grant_id,
		pg_catalog.statement_timestamp() - x.acquired * interval '1 microsecond',
		pg_catalog.statement_timestamp() - x.renewed * interval '1 microsecond',
		pg_catalog.statement_timestamp() - x.expires * interval '1 microsecond',
		pg_catalog.statement_timestamp() - x.released * interval '1 microsecond',
		pg_catalog.statement_timestamp() - x.happened * interval '1 microsecond',
		x.ttl, x.up_for, x.data, x.detail
	FROM pg_catalog.json_to_recordset($1::text::json) AS x(sort text, id text, lock_name text, node_id text,
		machine text, pid bigint, holder_id text, kind text, slot integer, slots integer, fence bigint, grant_id text,
		acquired bigint, renewed bigint, expires bigint, released bigint, happened bigint, ttl bigint, up_for bigint,
		data text, detail text)
	WHERE x.sort <> 'host' OR x.detail IS NOT NULL
		OR EXISTS (SELECT FROM {table} AS h WHERE h.sort = 'host' AND h.id = $2::text)
	ON CONFLICT (sort, id) DO UPDATE SET
		lock_name = excluded.lock_name, node_id = excluded.node_id, machine = excluded.machine, pid = excluded.pid,
		holder_id = excluded.holder_id, kind = excluded.kind, slot = excluded.slot, slots = excluded.slots,
		fence = excluded.fence, grant_id = excluded.grant_id, acquired_at = excluded.acquired_at,
		renewed_at = excluded.renewed_at, expires_at = excluded.expires_at, released_at = excluded.released_at,
		ttl = excluded.ttl, up_for = excluded.up_for, data = excluded.data,
		detail = coalesce(excluded.detail, t.detail)
	WHERE CASE t.sort
		WHEN 'host' THEN excluded.up_for >= t.up_for
		WHEN 'lease' THEN CASE
			WHEN t.machine = excluded.machine AND t.pid = excluded.pid AND t.holder_id = excluded.holder_id
				AND t.grant_id = excluded.grant_id THEN t.released_at IS NULL
			WHEN t.fence <> 0 AND excluded.fence <> 0 THEN excluded.fence > t.fence
			-- It is live and the row is over: the row may be a late record of an earlier holder.
			WHEN excluded.released_at IS NULL AND excluded.expires_at > pg_catalog.statement_timestamp()
				AND (t.released_at IS NOT NULL OR t.expires_at <= pg_catalog.statement_timestamp()) THEN true
			ELSE excluded.acquired_at > t.acquired_at END
		ELSE false END -- events and runs are written once
	RETURNING t.sort, t.detail IS NOT NULL AS known
)
-- A heartbeat that was overtaken is not among what was written.
SELECT coalesce((SELECT w.known FROM written AS w WHERE w.sort = 'host'),
		EXISTS (SELECT FROM {table} AS h WHERE h.sort = 'host' AND h.id = $2::text AND h.detail IS NOT NULL)),
	(extract(epoch FROM pg_catalog.statement_timestamp()) * 1000000)::bigint
