-- Ends each lease that its token still holds. The row stays: it stores the fence and the last
-- holder. Locked rows are handled as in extend.sql, but it tries again for half of p_wait.
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
	v_succeeded text[] := '{}'; -- the names of which a grant was released as succeeded
	v_ended text[];
	v_resource text;
BEGIN
	{session}
	PERFORM set_config('lock_timeout', p_wait::text, true);
	-- If the slot is unknown, its acquire may still be running: wait for it.
	PERFORM pg_advisory_xact_lock(hashtextextended('tickslot token ' || x.t, 0))
	FROM (SELECT y.t FROM json_to_recordset(p_grants::json) AS y(s integer, t text) WHERE y.s = -1 ORDER BY y.t) AS x;
	-- A crash of the server may undo a release: then the lease ends with its TTL.
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
	-- Last, because an acquire that has one of these rows locked waits for nothing more. If a row
	-- stays locked its success is not stored: the release matters more.
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
