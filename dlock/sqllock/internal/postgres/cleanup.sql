-- Deletes the rows of the names after p_after that have been idle for p_retention, until it has
-- seen p_limit rows. It waits for no lock, because what it has deleted stays locked until it
-- commits; it skips names and rows that another session has locked. It locks a name while it
-- deletes its rows, from the highest slot down, because a gap would hide a slot for a while.
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
				AND h.overrides_version IS NULL -- overrides stay
			AND NOT EXISTS (SELECT FROM {table} AS l WHERE l.resource_name = p_after AND l.slot >= 0)
		FOR UPDATE SKIP LOCKED;
		IF FOUND THEN
			DELETE FROM {table} AS h WHERE h.resource_name = p_after AND h.slot = -1;
			o_deleted := o_deleted + 1;
		END IF;
	END LOOP;
END
$tickslot$;
