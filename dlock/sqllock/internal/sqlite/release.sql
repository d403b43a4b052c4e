-- Ends each lease that its token still holds. The row stays: it stores the fence and the last
-- holder.
UPDATE {table} SET expires_at = 0, released_at = {now}
FROM (SELECT json_extract(value, '$.n') AS n, json_extract(value, '$.s') AS s, json_extract(value, '$.t') AS t
	FROM json_each(?1)) AS wanted
WHERE lock_id = wanted.t AND resource_name = wanted.n AND wanted.s IN (-1, slot) AND expires_at >= {now}
RETURNING resource_name, lock_id,
	coalesce((SELECT head.slots FROM {table} AS head WHERE head.resource_name = {name}.resource_name
		AND head.slot = -1), 0), 0, NULL
