-- name: create_update
-- Changes the overrides of a name, and returns the new version, or 0 if that is not p_if_version.
-- NULL leaves a value unchanged.
CREATE OR REPLACE FUNCTION {update}(
	p_resource text,
	p_pause bigint,       -- µs from now; 0: resume
	p_pause_origin text,  -- who changed it, and why
	p_limit integer,      -- slots; -1: as grants declare
	p_limit_origin text,
	p_trigger_origin text, -- requests a run
	p_value text,
	p_if_version bigint,  -- apply all changes, with the value, only if the name has this version; NULL: no value
	p_wait bigint,        -- ms to wait for a lock
	OUT o_version bigint
)
LANGUAGE plpgsql
{settings}
AS $tickslot$
#variable_conflict use_variable
DECLARE
	v_clock timestamptz;
	v_clock_us bigint;
BEGIN
	{session}
	PERFORM set_config('lock_timeout', p_wait::text, true);
	IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
		PERFORM set_config('synchronous_commit', 'on', true); -- an update must survive a crash of the server
	END IF;
	-- Grants in progress do not know this limit. If they have locked the name, the next request
	-- that knows the limit waits for them and counts them. The others have locked the row of a
	-- slot, and this statement waits for them. Later grants find the rows locked or see a new
	-- version.
	IF p_limit IS NOT NULL THEN
		PERFORM FROM {table} AS l WHERE l.resource_name = p_resource AND l.slot >= 0
			ORDER BY l.resource_name, l.slot FOR UPDATE;
	END IF;
	o_version := 0;
	IF p_if_version > 0
		AND NOT EXISTS (SELECT FROM {table} AS h WHERE h.resource_name = p_resource AND h.slot = -1) THEN
		RETURN;
	END IF;
	v_clock := clock_timestamp();
	v_clock_us := extract(epoch FROM v_clock) * 1000000;
	INSERT INTO {table} AS head (resource_name, slot, overrides_version, paused_until, pause_origin, slot_limit,
		limit_origin, triggered_at, trigger_origin, kept_value)
	VALUES (p_resource, -1, v_clock_us,
		CASE WHEN p_pause > 0 THEN v_clock + p_pause * interval '1 microsecond' END,
		CASE WHEN p_pause > 0 THEN p_pause_origin END,
		CASE WHEN p_limit >= 0 THEN p_limit END, p_limit_origin,
		CASE WHEN p_trigger_origin IS NOT NULL THEN v_clock_us END, p_trigger_origin,
		CASE WHEN p_if_version IS NOT NULL THEN p_value END)
	ON CONFLICT (resource_name, slot) DO UPDATE SET
		overrides_version = greatest(head.overrides_version + 1, v_clock_us),
		paused_until = CASE
			WHEN p_pause > 0 THEN EXCLUDED.paused_until
			-- not the clock: if it is ahead and is set back, that would be a pause again
			WHEN p_pause = 0 AND head.paused_until > v_clock THEN NULL
			ELSE head.paused_until END,
		resumed_at = CASE
			WHEN p_pause > 0 THEN head.resumed_at
			WHEN p_pause = 0 AND head.paused_until > v_clock THEN v_clock
			-- ticks under a limit of 0 were not missed
			WHEN head.slot_limit = 0 AND p_limit <> 0 AND coalesce(head.paused_until < v_clock, true) THEN v_clock
			ELSE head.resumed_at END,
		pause_origin = CASE
			WHEN p_pause > 0 OR p_pause = 0 AND head.paused_until > v_clock THEN p_pause_origin
			WHEN head.slot_limit = 0 AND p_limit <> 0
				AND coalesce(head.paused_until < v_clock, true) THEN p_limit_origin
			ELSE head.pause_origin END,
		slot_limit = CASE WHEN p_limit IS NULL THEN head.slot_limit ELSE EXCLUDED.slot_limit END,
		limit_origin = coalesce(p_limit_origin, head.limit_origin),
		triggered_at = CASE WHEN p_trigger_origin IS NULL THEN head.triggered_at
			ELSE greatest(EXCLUDED.triggered_at, head.triggered_at + 1) END,
		trigger_origin = coalesce(p_trigger_origin, head.trigger_origin),
		kept_value = CASE WHEN p_if_version IS NULL THEN head.kept_value ELSE p_value END
	WHERE p_if_version IS NULL OR coalesce(head.overrides_version, 0) = p_if_version
	RETURNING head.overrides_version INTO o_version;
	o_version := coalesce(o_version, 0); -- another request has changed it
END
$tickslot$;

-- name: update
SELECT {update}($1::text, $2::bigint, $3::text, $4::integer, $5::text, $6::text, $7::text, $8::bigint, $9::bigint)

-- name: create_inspect
-- Returns the overrides of the names that are in the table.
CREATE OR REPLACE FUNCTION {inspect}(p_resources text, p_values boolean, p_wait bigint, OUT o_answers text)
LANGUAGE plpgsql
{settings}
AS $tickslot$
#variable_conflict use_variable
BEGIN
	{session}
	PERFORM set_config('lock_timeout', p_wait::text, true);
	SELECT coalesce(json_agg(json_build_object(
		'n', h.resource_name, 'version', coalesce(h.overrides_version, 0),
		'pause_left', coalesce((extract(epoch FROM h.paused_until - clock_timestamp()) * 1000000)::bigint, 0),
		'pause_origin', coalesce(h.pause_origin, ''),
		'limit', h.slot_limit, 'limit_origin', coalesce(h.limit_origin, ''),
		'triggered_at', h.triggered_at,
		'trigger_age', coalesce((extract(epoch FROM clock_timestamp()) * 1000000)::bigint - h.triggered_at, 0),
		'trigger_origin', coalesce(h.trigger_origin, ''),
		'tick', h.tick, 'host', coalesce(h.host_name, ''), 'pid', coalesce(h.process_id, 0),
		'id', coalesce(h.process_tag, ''),
		'clock', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
		'value', CASE WHEN p_values THEN coalesce(h.kept_value, '') ELSE '' END
	)), '[]')::text
	INTO o_answers FROM {table} AS h
	WHERE h.slot = -1 AND h.resource_name IN (SELECT json_array_elements_text(p_resources::json));
END
$tickslot$;

-- name: inspect
SELECT {inspect}($1::text, $2::boolean, $3::bigint)

-- name: create_revoke
-- Marks the lease of a slot as revoked if it is held with that fence. The first revocation stays; a
-- second one changes nothing.
CREATE OR REPLACE FUNCTION {revoke}(p_resource text, p_slot integer, p_fence bigint, p_origin text, p_wait bigint,
	OUT o_held boolean)
LANGUAGE plpgsql
{settings}
AS $tickslot$
#variable_conflict use_variable
BEGIN
	{session}
	PERFORM set_config('lock_timeout', p_wait::text, true);
	IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
		PERFORM set_config('synchronous_commit', 'on', true); -- an update must survive a crash of the server
	END IF;
	UPDATE {table} AS l SET revoked = coalesce(l.revoked, p_origin)
	WHERE l.resource_name = p_resource AND l.slot = p_slot AND l.fence = p_fence AND l.expires_at > clock_timestamp();
	o_held := FOUND;
END
$tickslot$;

-- name: revoke
SELECT {revoke}($1::text, $2::integer, $3::bigint, $4::text, $5::bigint)
