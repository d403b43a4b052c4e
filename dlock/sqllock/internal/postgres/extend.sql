-- Extends each lease that its token still holds, and that was not revoked, to p_ttl from now. It
-- skips locked rows. If any other lease was extended, it returns at once and reports the locked
-- ones as -1, unknown, because it must not wait while it keeps rows locked; otherwise it tries
-- again for an eighth of p_wait.
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
