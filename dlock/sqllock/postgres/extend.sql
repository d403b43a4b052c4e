-- Makes each lease that is still held by its token, and was not revoked, last p_ttl from now. The rows are locked in one order, so that two calls
-- with the same leases do not block each other.
CREATE OR REPLACE FUNCTION {extend}(p_ttl bigint, p_grants text, p_wait bigint, OUT o_answers text)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
AS $tickslot$
BEGIN
	PERFORM set_config('lock_timeout', p_wait::text, true);
	IF current_setting('synchronous_commit') = 'off' THEN
		PERFORM set_config('synchronous_commit', 'on', true); -- what the holder relies on must survive a crash of the server
	END IF;
	WITH wanted AS (
		SELECT * FROM json_to_recordset(p_grants::json) AS x(i integer, n text, s integer, t text)
	), held AS (
		SELECT wanted.i, l.resource_name, l.slot
		FROM wanted JOIN {table} AS l ON l.lock_id = wanted.t AND l.resource_name = wanted.n AND l.slot = wanted.s
		WHERE l.expires_at > clock_timestamp()
		ORDER BY l.resource_name, l.slot
		FOR UPDATE OF l
	), done AS (
		UPDATE {table} AS l SET expires_at = CASE WHEN l.revoked IS NULL THEN clock_timestamp() + p_ttl * interval '1 microsecond' ELSE l.expires_at END
		FROM held WHERE l.resource_name = held.resource_name AND l.slot = held.slot AND l.expires_at > clock_timestamp() -- after a wait
		RETURNING held.i, l.revoked
	)
	SELECT json_agg(json_build_array(wanted.i, CASE WHEN done.i IS NULL OR done.revoked IS NOT NULL THEN 0 ELSE 1 END, coalesce(head.slots, 0),
		coalesce(head.orders_version, 0), done.revoked))
	INTO o_answers
	FROM wanted LEFT JOIN done ON done.i = wanted.i
	LEFT JOIN {table} AS head ON head.resource_name = wanted.n AND head.slot = -1;
END
$tickslot$;
