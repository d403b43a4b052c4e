-- name: update
-- Changes the overrides of name ?1: a pause for ?2 (0: resume) by the origin ?3, a limit of ?4
-- slots (-1: as declared) by the origin ?5, a run requested by the origin ?6. NULL leaves a value
-- unchanged. If ?8 is not NULL and the name has version ?8, kept_value becomes ?7. If the name has
-- another version, nothing changes. Like a lease, a pause ends when the clock is past paused_until.
INSERT INTO {table} (resource_name, slot, overrides_version, paused_until, pause_origin, slot_limit, limit_origin,
	triggered_at, trigger_origin, kept_value)
SELECT ?1, -1, {now}, CASE WHEN ?2 > 0 THEN {now} + ?2 END, CASE WHEN ?2 > 0 THEN ?3 END, nullif(?4, -1), ?5,
	CASE WHEN ?6 IS NOT NULL THEN {now} END, ?6, CASE WHEN ?8 IS NOT NULL THEN ?7 END
WHERE ?8 IS NULL OR ?8 = coalesce((SELECT overrides_version FROM {table} WHERE resource_name = ?1 AND slot = -1), 0)
ON CONFLICT (resource_name, slot) DO UPDATE SET
	overrides_version = max(coalesce(overrides_version, 0) + 1, excluded.overrides_version),
	paused_until = CASE
		WHEN ?2 > 0 THEN excluded.paused_until
		-- not now: if the clock is ahead and is set back, that would be a pause again
		WHEN ?2 = 0 AND paused_until >= {now} THEN NULL
		ELSE paused_until END,
	resumed_at = CASE
		WHEN ?2 > 0 THEN resumed_at
		WHEN ?2 = 0 AND paused_until >= {now} THEN {now}
		-- ticks under a limit of 0 were not missed
		WHEN slot_limit = 0 AND ?4 <> 0 AND coalesce(paused_until, 0) < {now} THEN {now}
		ELSE resumed_at END,
	pause_origin = CASE
		WHEN ?2 > 0 OR ?2 = 0 AND paused_until >= {now} THEN ?3
		WHEN slot_limit = 0 AND ?4 <> 0 AND coalesce(paused_until, 0) < {now} THEN ?5
		ELSE pause_origin END,
	slot_limit = CASE WHEN ?4 IS NULL THEN slot_limit ELSE excluded.slot_limit END,
	limit_origin = coalesce(?5, limit_origin),
	triggered_at = CASE WHEN ?6 IS NULL THEN triggered_at
		ELSE max(excluded.triggered_at, coalesce(triggered_at + 1, 0)) END,
	trigger_origin = coalesce(?6, trigger_origin),
	kept_value = CASE WHEN ?8 IS NULL THEN kept_value ELSE ?7 END

-- name: inspect
SELECT json_group_array(json_object('n', resource_name, 'version', coalesce(overrides_version, 0),
	'pause_left', coalesce(paused_until - {now}, 0), 'pause_origin', coalesce(pause_origin, ''),
	'limit', slot_limit, 'limit_origin', coalesce(limit_origin, ''),
	'triggered_at', triggered_at, 'trigger_age', coalesce({now} - triggered_at, 0),
	'trigger_origin', coalesce(trigger_origin, ''),
	'tick', tick, 'host', coalesce(host_name, ''), 'pid', coalesce(process_id, 0), 'id', coalesce(process_tag, ''),
	'clock', {now}, 'value', CASE WHEN ?2 THEN coalesce(kept_value, '') ELSE '' END))
FROM {table} WHERE slot = -1 AND resource_name IN (SELECT value FROM json_each(?1))

-- name: revoke
-- Marks the lease of slot ?2 as revoked by the origin ?4 if it is held with fence ?3. The first
-- revocation stays; a second one changes nothing.
UPDATE {table} SET revoked = coalesce(revoked, ?4)
WHERE resource_name = ?1 AND slot = ?2 AND fence = ?3 AND expires_at >= {now}
