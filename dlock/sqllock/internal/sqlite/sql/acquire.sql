-- name: snapshot
-- Reads, in one snapshot, everything that decides an acquire.
--
-- ?1 resource_name, ?2 number of slots (at least 1) unless overridden, ?3 token, ?4 a random
-- number, which selects the window of ?5 slots in which deleted rows are noticed, ?6 whether the
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
		ORDER BY expires_at DESC LIMIT 1), 0),
	coalesce(head.starts, '')
FROM (SELECT 1) AS one
LEFT JOIN {table} AS head ON head.resource_name = ?1 AND head.slot = -1
LEFT JOIN {table} AS first ON first.resource_name = ?1 AND first.slot = (
	SELECT slot FROM {table} WHERE resource_name = ?1 AND slot >= 0 AND slot < {n} ORDER BY expires_at LIMIT 1)
LEFT JOIN {table} AS who ON who.resource_name = ?1 AND who.slot = CASE WHEN head.slot_limit > 0 OR ?7
	THEN (SELECT slot FROM {table} WHERE resource_name = ?1 AND slot >= 0 AND expires_at >= {now}
		ORDER BY expires_at LIMIT 1)
	ELSE first.slot END

-- name: asked
-- Makes schedule ?2 known since ?3, before any tick of it was claimed.
INSERT INTO {table} (resource_name, slot, asked_schedule, asked_at) VALUES (?1, -1, ?2, ?3)
ON CONFLICT (resource_name, slot) DO UPDATE SET
	asked_schedule = excluded.asked_schedule, asked_at = excluded.asked_at

-- name: shorten
-- Makes each lease of name ?1 that was renewed while the clock was ahead end one TTL from now.
-- Otherwise the lease would last too long. Its holder trusts it for one TTL from a moment in the
-- past.
UPDATE {table} SET expires_at = {now} + expires_at - renewed_at, renewed_at = {now}
WHERE resource_name = ?1 AND slot >= 0 AND renewed_at > {now} + {ahead} AND expires_at >= {now}

-- name: count_start
-- Stores the starts ?2 of name ?1 if no other host has stored starts since ?3 was read.
UPDATE {table} SET starts = ?2 WHERE resource_name = ?1 AND slot = -1 AND coalesce(starts, '') = ?3

-- name: regrant
-- Extends the lease of token ?2 to ?3 from now, even if it was revoked: the caller trusts the
-- answer for that long, and its first heartbeat reports the revocation.
UPDATE {table} SET expires_at = {now} + ?3, renewed_at = {now}
WHERE lock_id = ?2 AND +resource_name = ?1 AND slot >= 0 AND expires_at >= {now}
RETURNING slot, fence

-- name: missing_row
-- Finds the first slot after ?2, up to ?3, that has no row.
SELECT CASE WHEN NOT EXISTS (SELECT 1 FROM {table} WHERE resource_name = ?1 AND slot = ?2 + 1) THEN ?2 + 1
	ELSE (SELECT min(slot) + 1 FROM {table} AS before WHERE resource_name = ?1 AND slot > ?2 AND slot < ?3
		AND NOT EXISTS (SELECT 1 FROM {table} WHERE resource_name = ?1 AND slot = before.slot + 1)) END

-- name: name_row
-- Stores the declared number of slots ?3. If tick ?2 is not null, counts a start of it, for
-- schedule ?7 and the holder (?4, ?5, ?6). The caller has checked that no later tick was claimed.
INSERT INTO {table} (resource_name, slot, tick, tick_starts, tick_schedule, slots, host_name, process_id, process_tag)
VALUES (?1, -1, ?2, 1, ?7, ?3, CASE WHEN ?2 IS NOT NULL THEN ?4 END, CASE WHEN ?2 IS NOT NULL THEN ?5 END,
	CASE WHEN ?2 IS NOT NULL THEN ?6 END)
ON CONFLICT (resource_name, slot) DO UPDATE SET
	tick = coalesce(excluded.tick, tick),
	tick_starts = CASE WHEN excluded.tick IS NULL THEN tick_starts
		WHEN excluded.tick = tick THEN tick_starts + 1 ELSE 1 END,
	tick_schedule = CASE WHEN excluded.tick IS NULL THEN tick_schedule ELSE excluded.tick_schedule END,
	asked_schedule = CASE WHEN excluded.tick IS NULL OR tick_schedule = excluded.tick_schedule THEN asked_schedule END,
	slots = excluded.slots,
	host_name = CASE WHEN excluded.tick IS NULL THEN host_name ELSE excluded.host_name END,
	process_id = CASE WHEN excluded.tick IS NULL THEN process_id ELSE excluded.process_id END,
	process_tag = CASE WHEN excluded.tick IS NULL THEN process_tag ELSE excluded.process_tag END

-- name: grant
-- Grants free slot ?2 to token ?3 for ?4.
INSERT INTO {table} (resource_name, slot, lock_id, fence, acquired_at, renewed_at, expires_at, host_name, process_id,
	process_tag)
VALUES (?1, ?2, ?3, {now}, {now}, {now}, {now} + ?4, ?5, ?6, ?7)
ON CONFLICT (resource_name, slot) DO UPDATE SET
	lock_id = excluded.lock_id, fence = max(fence + 1, excluded.fence),
	acquired_at = excluded.acquired_at, renewed_at = excluded.renewed_at, expires_at = excluded.expires_at,
	released_at = NULL, revoked = NULL,
	host_name = excluded.host_name, process_id = excluded.process_id, process_tag = excluded.process_tag
RETURNING slot, fence
