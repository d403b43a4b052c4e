-- One look, on one snapshot, at all that decides about an acquire.
--
-- ?1 resource_name, ?2 number of slots, at least 1, ?3 token, ?4 and ?5 the slot before and the last one of a window in which rows that
-- somebody deleted are noticed; SQLite would plan "slot >= ?4" anew for every value, because it resembles the condition of an index
SELECT {now}, head.tick, head.tick_starts, head.slots, head.succeeded_at,
	first.slot, coalesce(first.expires_at, 0), coalesce(first.acquired_at, 0),
	coalesce(first.host_name, ''), coalesce(first.process_id, 0), coalesce(first.process_tag, ''),
	(SELECT max(slot) FROM {table} WHERE resource_name = ?1 AND slot >= 0 AND slot < ?2),
	(SELECT count(*) FROM {table} WHERE resource_name = ?1 AND slot > ?4 AND slot <= ?5),
	EXISTS (SELECT 1 FROM {table} WHERE lock_id = ?3 AND +resource_name = ?1 AND slot >= 0 AND slot < ?2 AND expires_at >= {now})
FROM (SELECT 1) AS one
LEFT JOIN {table} AS head ON head.resource_name = ?1 AND head.slot = -1
LEFT JOIN {table} AS first ON first.resource_name = ?1 AND first.slot = (
	SELECT slot FROM {table} WHERE resource_name = ?1 AND slot >= 0 AND slot < ?2 ORDER BY expires_at LIMIT 1)
