-- Looks at the ?4 rows after (?2, ?3), and returns the leases among them, of names with the prefix
-- ?1, that have not ended or were released less than ?5 ago. The prefix is no condition of the
-- range, because a page reads no more than ?4 rows.
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
