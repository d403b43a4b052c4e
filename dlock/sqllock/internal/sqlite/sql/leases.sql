-- name: extend
-- Extends each lease to ?1 from now if its token still holds it and it was not revoked. Returns the
-- leases that are held.
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

-- name: release
-- Ends each lease that its token still holds. The row stays, because it stores the fence and the
-- last holder.
UPDATE {table} SET expires_at = 0, released_at = {now}
FROM (SELECT json_extract(value, '$.n') AS n, json_extract(value, '$.s') AS s, json_extract(value, '$.t') AS t
	FROM json_each(?1)) AS wanted
WHERE lock_id = wanted.t AND resource_name = wanted.n AND wanted.s IN (-1, slot) AND expires_at >= {now}
RETURNING resource_name, lock_id,
	coalesce((SELECT head.slots FROM {table} AS head WHERE head.resource_name = {name}.resource_name
		AND head.slot = -1), 0), 0, NULL

-- name: mark_succeeded
-- Records that a grant of name ?1 was released as succeeded.
UPDATE {table} SET succeeded_at = {now} WHERE resource_name = ?1 AND slot = -1

-- name: list
SELECT json_group_array(json_object('slot', slot, 'host', coalesce(host_name, ''), 'pid', coalesce(process_id, 0),
	'id', coalesce(process_tag, ''),
	'fence', fence, 'held_for', now - acquired_at, 'renewed_ago', now - renewed_at, 'expires_in', expires_at - now))
FROM (
	SELECT *, {now} AS now FROM {table}
	WHERE resource_name = ?1 AND slot >= 0 AND expires_at >= {now}
	ORDER BY slot
)

-- name: enumerate
-- Reads the ?4 rows after (?2, ?3). Among them, returns the leases of names with the prefix ?1 that
-- have not ended or were released less than ?5 ago. The prefix does not narrow the range, because a
-- page reads no more than ?4 rows.
WITH page AS MATERIALIZED (
	SELECT resource_name, slot, fence, acquired_at, renewed_at, expires_at, released_at, host_name, process_id,
		process_tag, {now} AS now
	FROM {table} WHERE (resource_name, slot) > (?2, ?3) ORDER BY resource_name, slot LIMIT ?4
)
SELECT (SELECT json_group_array(json_object('n', resource_name, 'slot', slot, 'host', coalesce(host_name, ''),
		'pid', coalesce(process_id, 0), 'id', coalesce(process_tag, ''), 'fence', fence,
		'held_for', coalesce(now - acquired_at, 0), 'renewed_ago', now - renewed_at,
		'expires_in', coalesce(expires_at - now, 0),
		'released_ago', CASE WHEN expires_at = 0 THEN now - released_at END))
	FROM page WHERE slot >= 0 AND substr(resource_name, 1, length(?1)) = ?1
		AND (expires_at >= now OR expires_at = 0 AND abs(now - released_at) < ?5)),
	(SELECT count(*) FROM page),
	coalesce((SELECT resource_name FROM page ORDER BY resource_name DESC, slot DESC LIMIT 1), ''),
	coalesce((SELECT slot FROM page ORDER BY resource_name DESC, slot DESC LIMIT 1), 0)

-- name: cleanup_page
WITH page AS MATERIALIZED (
	SELECT resource_name, slot FROM {table}
	WHERE (resource_name, slot) > (?1, ?2)
	ORDER BY resource_name, slot LIMIT ?3
)
SELECT (SELECT count(*) FROM page),
	coalesce((SELECT resource_name FROM page ORDER BY resource_name DESC, slot DESC LIMIT 1), ''),
	coalesce((SELECT slot FROM page ORDER BY resource_name DESC, slot DESC LIMIT 1), 0)

-- name: cleanup
-- Deletes rows that have not been used for ?4, among those after (?1, ?2) and up to the last row of
-- name ?3. It deletes the slots of a name from the highest down and all at once, because a gap
-- would hide a slot for a while. The first cleanup that finds no slot of a name deletes its row
-- with slot -1.
WITH used AS MATERIALIZED (
	SELECT resource_name, max(slot) AS slot FROM {table}
	WHERE resource_name >= ?1 AND resource_name <= ?3 AND slot >= 0
	AND (max(coalesce(acquired_at, 0), coalesce(expires_at, 0), coalesce(released_at, 0)) >= {now} - ?4
		OR fence >= {now})
	GROUP BY resource_name
)
DELETE FROM {table}
WHERE (resource_name, slot) > (?1, ?2) AND resource_name <= ?3
AND CASE WHEN slot >= 0
	THEN slot > coalesce((SELECT used.slot FROM used WHERE used.resource_name = {name}.resource_name), -1)
	ELSE max(coalesce(tick, 0), coalesce(asked_at, 0)) < {now} - ?4 AND overrides_version IS NULL -- keep overrides
		AND NOT EXISTS (SELECT 1 FROM {table} AS s WHERE s.resource_name = {name}.resource_name AND s.slot >= 0)
	END
