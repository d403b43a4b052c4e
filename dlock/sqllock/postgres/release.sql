-- Ends each lease that is still held by its token. The row stays: it is the fence, and tells who had it last.
CREATE OR REPLACE FUNCTION {release}(p_grants text, p_wait bigint, OUT o_answers text)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
AS $tickslot$
DECLARE
	well text[];
	resource text;
BEGIN
	PERFORM set_config('lock_timeout', p_wait::text, true);
	-- An attempt whose slot is not known may still be under way: it is waited for.
	PERFORM pg_advisory_xact_lock(hashtextextended('tickslot token ' || x.t, 0))
	FROM (SELECT t FROM json_to_recordset(p_grants::json) AS y(s integer, t text) WHERE s = -1 ORDER BY t) AS x;
	-- A crash of the server may undo a release that has just been made: then the lease ends with its TTL.
	PERFORM set_config('synchronous_commit', 'off', true);
	WITH wanted AS (
		SELECT * FROM json_to_recordset(p_grants::json) AS x(i integer, n text, s integer, t text, w integer)
	), held AS (
		SELECT wanted.i, l.resource_name, l.slot
		FROM wanted JOIN {table} AS l ON l.lock_id = wanted.t AND l.resource_name = wanted.n AND (wanted.s = -1 OR l.slot = wanted.s)
		WHERE l.expires_at > clock_timestamp()
		ORDER BY l.resource_name, l.slot
		FOR UPDATE OF l
	), done AS (
		UPDATE {table} AS l SET expires_at = 'epoch', released_at = clock_timestamp()
		FROM held WHERE l.resource_name = held.resource_name AND l.slot = held.slot
		RETURNING held.i
	)
	SELECT json_agg(json_build_array(wanted.i, CASE WHEN done.i IS NULL THEN 0 ELSE 1 END, coalesce(head.slots, 0))),
		array_agg(DISTINCT wanted.n ORDER BY wanted.n) FILTER (WHERE wanted.w = 1 AND done.i IS NOT NULL)
	INTO o_answers, well
	FROM wanted LEFT JOIN done ON done.i = wanted.i
	LEFT JOIN {table} AS head ON head.resource_name = wanted.n AND head.slot = -1;
	-- One after the other, in one order, when all slots are had: an attempt that holds one of these rows waits for nothing more.
	FOREACH resource IN ARRAY coalesce(well, '{}') LOOP
		UPDATE {table} SET succeeded_at = clock_timestamp() WHERE resource_name = resource AND slot = -1;
	END LOOP;
END
$tickslot$;
