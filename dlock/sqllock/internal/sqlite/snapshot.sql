-- Reads in one snapshot all that decides about an acquire.
--
-- ?1 resource_name, ?2 number of slots (at least 1) unless overridden, ?3 token, ?4 a random
-- number, which selects one window of ?5 slots in which deleted rows are noticed, ?6 whether the
-- end of the last lease is needed, ?7 whether the leases of all slots count.
SELECT {now}, head.tick, head.tick_starts, coalesce(head.tick_schedule, 0), head.asked_schedule,
	coalesce(head.asked_at, 0), head.slots, head.succeeded_at,
	coalesce(head.host_name, ''), coalesce(head.process_id, 0), coalesce(head.process_tag, ''),
	coalesce(head.overrides_version, 0), coalesce(head.paused_until, -1), coalesce(head.resumed_at, -1),
	coalesce(head.pause_origin, ''), head.slot_limit, coalesce(head.limit_origin, ''),
	first.slot, coalesce(first.expires_at, 0),
	coalesce(who.expires_at, 0), coalesce(who.acquired_at, 0), coalesce(who.host_name, ''), coalesce(who.process_id, 0),
	coalesce(who.process_tag, ''),
	CASE WHEN head.slot_limit > 0 OR ?7 THEN (SELECT count(*) FROM {table} WHERE resource_name = ?1 AND slot >= 0
		AND expires_at >= {now}) ELSE 0 END,
	(SELECT max(slot) FROM {table} WHERE resource_name = ?1 AND slot >= 0 AND slot < {n}),
	(SELECT count(*) FROM {table} WHERE resource_name = ?1 AND slot >= ?4 % (({n} + ?5 - 1) / ?5) * ?5
		AND slot < min(?4 % (({n} + ?5 - 1) / ?5) * ?5 + ?5, {n})),
	CASE WHEN ?6 THEN (SELECT coalesce(max(max(coalesce(expires_at, 0),
		CASE WHEN released_at <= {now} + {ahead} THEN released_at ELSE 0 END)), 0) FROM {table}
		WHERE resource_name = ?1 AND slot >= 0) ELSE 0 END,
	EXISTS (SELECT 1 FROM {table} WHERE lock_id = ?3 AND +resource_name = ?1 AND slot >= 0 AND expires_at >= {now}),
	coalesce((SELECT overrides_version FROM {table} WHERE resource_name = '' AND slot = -1), 0),
	coalesce((SELECT renewed_at FROM {table} WHERE resource_name = ?1 AND slot >= 0
		ORDER BY expires_at DESC LIMIT 1), 0)
FROM (SELECT 1) AS one
LEFT JOIN {table} AS head ON head.resource_name = ?1 AND head.slot = -1
LEFT JOIN {table} AS first ON first.resource_name = ?1 AND first.slot = (
	SELECT slot FROM {table} WHERE resource_name = ?1 AND slot >= 0 AND slot < {n} ORDER BY expires_at LIMIT 1)
LEFT JOIN {table} AS who ON who.resource_name = ?1 AND who.slot = CASE WHEN head.slot_limit > 0 OR ?7
	THEN (SELECT slot FROM {table} WHERE resource_name = ?1 AND slot >= 0 AND expires_at >= {now}
		ORDER BY expires_at LIMIT 1)
	ELSE first.slot END
