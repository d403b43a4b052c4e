-- name: retry_locked
-- Retries the leases whose rows were locked, until v_until or until another lease was changed.
		EXIT WHEN v_left IS NULL;
		IF v_done > 0 OR clock_timestamp() > v_until THEN
			v_answers := v_answers || v_locked;
			EXIT;
		END IF;
		PERFORM pg_sleep(v_sleep);
		v_sleep := least(2 * v_sleep, 0.05);
		p_grants := v_left::text;

-- name: create_extend
-- Extends each lease to p_ttl from now if its token still holds it and it was not revoked. The
-- function skips locked rows. If it has extended any other lease, it must not wait, because it
-- keeps rows locked. So it returns at once and reports the skipped leases as -1 (unknown).
-- Otherwise it tries again for an eighth of p_wait.
CREATE OR REPLACE FUNCTION {extend}(p_ttl bigint, p_grants text, p_wait bigint, OUT o_answers text)
LANGUAGE plpgsql
{settings}
AS $tickslot$
#variable_conflict use_variable
DECLARE
	v_until CONSTANT timestamptz := clock_timestamp() + p_wait * interval '1 millisecond' / 8;
	v_sleep float8 := 0.001;
	v_answers jsonb := '[]';
	v_answered jsonb;
	v_locked jsonb;
	v_left json;
	v_done bigint;
BEGIN
	{session}
	PERFORM set_config('lock_timeout', p_wait::text, true);
	IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
		PERFORM set_config('synchronous_commit', 'on', true); -- an extension must survive a crash of the server
	END IF;
	LOOP
		WITH wanted AS (
			SELECT x.i, x.n, x.s, x.t FROM json_to_recordset(p_grants::json) AS x(i integer, n text, s integer, t text)
		), held AS (
			SELECT wanted.i, l.resource_name, l.slot
			FROM wanted JOIN {table} AS l ON l.lock_id = wanted.t AND l.resource_name = wanted.n AND l.slot = wanted.s
			WHERE l.expires_at > clock_timestamp()
			FOR UPDATE OF l SKIP LOCKED
		), done AS (
			UPDATE {table} AS l SET
				expires_at = CASE WHEN l.revoked IS NULL THEN clock_timestamp() + p_ttl * interval '1 microsecond'
					ELSE l.expires_at END,
				renewed_at = CASE WHEN l.revoked IS NULL THEN clock_timestamp() ELSE l.renewed_at END
			FROM held WHERE l.resource_name = held.resource_name AND l.slot = held.slot
				AND l.expires_at > clock_timestamp()
			RETURNING held.i, l.revoked
		)
		SELECT json_agg(x.answer) FILTER (WHERE x.locked IS NULL), json_agg(x.answer) FILTER (WHERE x.locked),
			json_agg(json_build_object('i', x.i, 'n', x.n, 's', x.s, 't', x.t)) FILTER (WHERE x.locked),
			count(*) FILTER (WHERE x.done)
		INTO v_answered, v_locked, v_left, v_done
		FROM (
			SELECT wanted.i, wanted.n, wanted.s, wanted.t, mine.locked, done.i IS NOT NULL AS done, json_build_array(
				wanted.i,
				CASE WHEN mine.locked THEN -1 WHEN done.i IS NULL OR done.revoked IS NOT NULL THEN 0 ELSE 1 END,
				coalesce(head.slots, 0), coalesce(head.overrides_version, 0), done.revoked) AS answer
			FROM wanted LEFT JOIN done ON done.i = wanted.i
			LEFT JOIN {table} AS head ON head.resource_name = wanted.n AND head.slot = -1
			LEFT JOIN LATERAL (SELECT true AS locked FROM {table} AS l
				WHERE done.i IS NULL AND l.resource_name = wanted.n AND l.slot = wanted.s AND l.lock_id = wanted.t
					AND l.expires_at > clock_timestamp()
			) AS mine ON true
		) AS x;
		v_answers := v_answers || coalesce(v_answered, '[]');
		{retry_locked}
	END LOOP;
	o_answers := v_answers::text;
END
$tickslot$;

-- name: extend
SELECT {extend}($1::bigint, $2::text, $3::bigint)

-- name: create_release
-- Ends each lease that its token still holds. The row stays: it stores the fence and the last
-- holder. Locked rows are handled as in extend, but the function tries again for half of p_wait.
CREATE OR REPLACE FUNCTION {release}(p_grants text, p_wait bigint, OUT o_answers text)
LANGUAGE plpgsql
{settings}
AS $tickslot$
#variable_conflict use_variable
DECLARE
	v_until CONSTANT timestamptz := clock_timestamp() + p_wait * interval '1 millisecond' / 2;
	v_sleep float8 := 0.001;
	v_answers jsonb := '[]';
	v_answered jsonb;
	v_locked jsonb;
	v_left json;
	v_done bigint;
	v_succeeded text[] := '{}'; -- names that had a grant released as succeeded
	v_ended text[];
	v_resource text;
BEGIN
	{session}
	PERFORM set_config('lock_timeout', p_wait::text, true);
	-- If a slot is unknown, the acquire may still be running: wait for it.
	PERFORM pg_advisory_xact_lock(hashtextextended('tickslot token ' || x.t, 0))
	FROM (SELECT y.t FROM json_to_recordset(p_grants::json) AS y(s integer, t text) WHERE y.s = -1 ORDER BY y.t) AS x;
	-- A crash of the server may undo a release. The lease then ends with its TTL.
	PERFORM set_config('synchronous_commit', 'off', true);
	LOOP
		WITH wanted AS (
			SELECT x.i, x.n, x.s, x.t, x.w FROM json_to_recordset(p_grants::json)
				AS x(i integer, n text, s integer, t text, w integer)
		), held AS (
			SELECT wanted.i, l.resource_name, l.slot
			FROM wanted JOIN {table} AS l ON l.lock_id = wanted.t AND l.resource_name = wanted.n
				AND (wanted.s = -1 OR l.slot = wanted.s)
			WHERE l.expires_at > clock_timestamp()
			FOR UPDATE OF l SKIP LOCKED
		), done AS (
			UPDATE {table} AS l SET expires_at = 'epoch', released_at = clock_timestamp()
			FROM held WHERE l.resource_name = held.resource_name AND l.slot = held.slot
			RETURNING held.i
		)
		SELECT json_agg(x.answer) FILTER (WHERE x.locked IS NULL), json_agg(x.answer) FILTER (WHERE x.locked),
			json_agg(json_build_object('i', x.i, 'n', x.n, 's', x.s, 't', x.t, 'w', x.w)) FILTER (WHERE x.locked),
			array_agg(x.n) FILTER (WHERE x.w = 1 AND x.done), count(*) FILTER (WHERE x.done)
		INTO v_answered, v_locked, v_left, v_ended, v_done
		FROM (
			SELECT wanted.i, wanted.n, wanted.s, wanted.t, wanted.w, mine.locked, done.i IS NOT NULL AS done,
				json_build_array(wanted.i,
					CASE WHEN mine.locked THEN -1 WHEN done.i IS NULL THEN 0 ELSE 1 END,
					coalesce(head.slots, 0)) AS answer
			FROM wanted LEFT JOIN done ON done.i = wanted.i
			LEFT JOIN {table} AS head ON head.resource_name = wanted.n AND head.slot = -1
			LEFT JOIN LATERAL (SELECT true AS locked FROM {table} AS l
				WHERE done.i IS NULL AND l.lock_id = wanted.t AND l.resource_name = wanted.n
					AND (wanted.s = -1 OR l.slot = wanted.s)
				AND l.expires_at > clock_timestamp() LIMIT 1
			) AS mine ON true
		) AS x;
		v_answers := v_answers || coalesce(v_answered, '[]');
		v_succeeded := v_succeeded || coalesce(v_ended, '{}');
		{retry_locked}
	END LOOP;
	-- This comes last, because an acquire that has locked one of these rows waits for nothing else.
	-- If a row stays locked, the success is not stored: the release matters more.
	FOR v_resource IN SELECT DISTINCT x FROM unnest(v_succeeded) AS x ORDER BY x LOOP
		LOOP
			PERFORM FROM {table} AS h WHERE h.resource_name = v_resource AND h.slot = -1 FOR UPDATE SKIP LOCKED;
			IF FOUND THEN
				UPDATE {table} AS h SET succeeded_at = clock_timestamp()
					WHERE h.resource_name = v_resource AND h.slot = -1;
				EXIT;
			END IF;
			EXIT WHEN clock_timestamp() > v_until
				OR NOT EXISTS (SELECT FROM {table} AS h WHERE h.resource_name = v_resource AND h.slot = -1);
			PERFORM pg_sleep(v_sleep);
			v_sleep := least(2 * v_sleep, 0.05);
		END LOOP;
	END LOOP;
	o_answers := v_answers::text;
END
$tickslot$;

-- name: release
SELECT {release}($1::text, $2::bigint)

-- name: create_list
-- Returns the leases of a name that have not ended.
CREATE OR REPLACE FUNCTION {list}(p_resource text, p_wait bigint, OUT o_held text)
LANGUAGE plpgsql
{settings}
AS $tickslot$
#variable_conflict use_variable
BEGIN
	{session}
	PERFORM set_config('lock_timeout', p_wait::text, true);
	SELECT coalesce(json_agg(json_build_object(
		'slot', h.slot, 'host', coalesce(h.host_name, ''), 'pid', coalesce(h.process_id, 0),
		'id', coalesce(h.process_tag, ''), 'fence', h.fence,
		'held_for', (extract(epoch FROM h.clock - h.acquired_at) * 1000000)::bigint,
		'renewed_ago', (extract(epoch FROM h.clock - h.renewed_at) * 1000000)::bigint,
		'expires_in', (extract(epoch FROM h.expires_at - h.clock) * 1000000)::bigint
	) ORDER BY h.slot), '[]')::text
	INTO o_held FROM (
		SELECT l.slot, l.host_name, l.process_id, l.process_tag, l.fence, l.acquired_at, l.renewed_at, l.expires_at,
			clock_timestamp() AS clock -- one instant for all columns
		FROM {table} AS l WHERE l.resource_name = p_resource AND l.slot >= 0 AND l.expires_at > clock_timestamp()
	) AS h;
END
$tickslot$;

-- name: list
SELECT {list}($1::text, $2::bigint)

-- name: create_enumerate
-- Reads the p_limit rows after (p_after, p_after_slot). Among them, returns the leases of names
-- with the prefix that have not ended or were released less than p_released ago. The prefix does
-- not narrow the range, because a page reads no more than p_limit rows.
CREATE OR REPLACE FUNCTION {enumerate}(p_prefix text, p_after text, p_after_slot integer, p_limit integer,
	p_released bigint, p_wait bigint, OUT o_leases text, OUT o_seen bigint, OUT o_last text, OUT o_last_slot integer)
LANGUAGE plpgsql
{settings}
SET enable_sort = off
AS $tickslot$
#variable_conflict use_variable
BEGIN
	{session}
	PERFORM set_config('lock_timeout', p_wait::text, true); -- for the table: the function waits for no row
	WITH page AS MATERIALIZED (
		SELECT l.resource_name, l.slot, l.fence, l.acquired_at, l.renewed_at, l.expires_at, l.released_at, l.host_name,
			l.process_id, l.process_tag
		FROM {table} AS l WHERE (l.resource_name, l.slot) > (p_after, p_after_slot)
		ORDER BY l.resource_name, l.slot LIMIT p_limit
	), live AS (
		SELECT page.*, clock_timestamp() AS clock FROM page
		WHERE page.slot >= 0 AND starts_with(page.resource_name, p_prefix) AND (page.expires_at > clock_timestamp()
			OR page.expires_at = 'epoch' AND abs(extract(epoch FROM clock_timestamp() - page.released_at)) * 1000000
				< p_released)
	)
	SELECT coalesce((SELECT json_agg(json_build_object(
			'n', live.resource_name, 'slot', live.slot, 'host', coalesce(live.host_name, ''),
			'pid', coalesce(live.process_id, 0), 'id', coalesce(live.process_tag, ''), 'fence', live.fence,
			'held_for', (extract(epoch FROM live.clock - live.acquired_at) * 1000000)::bigint,
			'renewed_ago', (extract(epoch FROM live.clock - live.renewed_at) * 1000000)::bigint,
			'expires_in', (extract(epoch FROM live.expires_at - live.clock) * 1000000)::bigint,
			'released_ago', CASE WHEN live.expires_at = 'epoch'
				THEN (extract(epoch FROM live.clock - live.released_at) * 1000000)::bigint END
		)) FROM live), '[]')::text,
		(SELECT count(*) FROM page), coalesce(last.resource_name, ''), coalesce(last.slot, 0)
	INTO o_leases, o_seen, o_last, o_last_slot
	FROM (SELECT 1) AS one LEFT JOIN LATERAL (
		SELECT page.resource_name, page.slot FROM page ORDER BY page.resource_name DESC, page.slot DESC LIMIT 1
	) AS last ON true;
END
$tickslot$;

-- name: enumerate
SELECT * FROM {enumerate}($1::text, $2::text, $3::integer, $4::integer, $5::bigint, $6::bigint)

-- name: create_cleanup
-- Deletes rows that have been idle for p_retention, of the names after p_after, until it has seen
-- p_limit rows. The function waits for no lock, because deleted rows stay locked until it commits.
-- It skips names and rows that another session has locked. It locks a name while it deletes the
-- rows of that name. It deletes slots from the highest down, because a gap would hide a slot for a
-- while.
CREATE OR REPLACE FUNCTION {cleanup}(p_retention bigint, p_after text, p_limit integer, OUT o_seen bigint,
	OUT o_deleted bigint, OUT o_last text)
LANGUAGE plpgsql
{settings}
AS $tickslot$
#variable_conflict use_variable
DECLARE
	p_wait CONSTANT bigint := 1000; -- ms to wait for the table
	v_before timestamptz := clock_timestamp() - p_retention * interval '1 microsecond';
	v_clock_us bigint := extract(epoch FROM clock_timestamp()) * 1000000;
	v_rows bigint;
	v_kept integer;
BEGIN
	{session}
	PERFORM set_config('lock_timeout', p_wait::text, true);
	o_seen := 0; o_deleted := 0; o_last := '';
	WHILE o_seen < p_limit LOOP
		SELECT l.resource_name INTO p_after FROM {table} AS l WHERE l.resource_name > p_after
			ORDER BY l.resource_name, l.slot LIMIT 1;
		EXIT WHEN NOT FOUND;
		o_last := p_after;
		SELECT count(*), max(l.slot) FILTER (WHERE l.slot >= 0 AND NOT (
				greatest(l.acquired_at, l.expires_at, l.released_at) < v_before AND l.fence < v_clock_us))
		INTO v_rows, v_kept FROM {table} AS l WHERE l.resource_name = p_after;
		o_seen := o_seen + v_rows;
		CONTINUE WHEN NOT EXISTS (SELECT FROM {table} AS l WHERE l.resource_name = p_after
			AND (l.slot = -1 AND v_kept IS NULL OR l.slot > coalesce(v_kept, -1)))
			OR NOT pg_try_advisory_xact_lock(hashtextextended('tickslot name ' || p_after, 0));
		WITH idle AS MATERIALIZED (
			SELECT l.slot FROM {table} AS l
			WHERE l.resource_name = p_after AND l.slot > coalesce(v_kept, -1)
				AND greatest(l.acquired_at, l.expires_at, l.released_at) < v_before AND l.fence < v_clock_us
			FOR UPDATE SKIP LOCKED
		), kept AS MATERIALIZED (
			SELECT coalesce(max(k.slot), -1) AS slot FROM (
				SELECT l.slot FROM {table} AS l WHERE l.resource_name = p_after AND l.slot >= 0
				EXCEPT SELECT idle.slot FROM idle) AS k
		)
		DELETE FROM {table} AS l USING kept WHERE l.resource_name = p_after AND l.slot > kept.slot AND l.slot >= 0;
		GET DIAGNOSTICS v_rows = ROW_COUNT;
		o_deleted := o_deleted + v_rows;
		PERFORM FROM {table} AS h WHERE h.resource_name = p_after AND h.slot = -1
			AND coalesce(greatest(h.tick, h.asked_at), 0) < v_clock_us - p_retention
				AND h.overrides_version IS NULL -- keep overrides
			AND NOT EXISTS (SELECT FROM {table} AS l WHERE l.resource_name = p_after AND l.slot >= 0)
		FOR UPDATE SKIP LOCKED;
		IF FOUND THEN
			DELETE FROM {table} AS h WHERE h.resource_name = p_after AND h.slot = -1;
			o_deleted := o_deleted + 1;
		END IF;
	END LOOP;
END
$tickslot$;

-- name: cleanup
SELECT * FROM {cleanup}($1::bigint, $2::text, $3::integer)
