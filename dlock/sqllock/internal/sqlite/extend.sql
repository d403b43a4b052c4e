-- Extends each lease that its token still holds to ?1 from now, unless it was revoked. It returns
-- the leases that are held.
UPDATE {table} SET expires_at = CASE WHEN revoked IS NULL THEN {now} + ?1 ELSE expires_at END,
	renewed_at = CASE WHEN revoked IS NULL THEN {now} ELSE renewed_at END
FROM (SELECT json_extract(value, '$.n') AS n, json_extract(value, '$.s') AS s, json_extract(value, '$.t') AS t
	FROM json_each(?2)) AS wanted
WHERE lock_id = wanted.t AND resource_name = wanted.n AND slot = wanted.s AND expires_at >= {now}
RETURNING resource_name, lock_id,
	coalesce((SELECT head.slots FROM {table} AS head WHERE head.resource_name = {name}.resource_name
		AND head.slot = -1), 0),
	coalesce((SELECT head.overrides_version FROM {table} AS head WHERE head.resource_name = {name}.resource_name
		AND head.slot = -1), 0), revoked
