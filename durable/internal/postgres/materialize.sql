-- $1: plans as JSON. One whose schedule is no longer as it was, or is locked, is left out. The
-- schedules stay locked until the end of the transaction, and their runs are inserted in the order
-- of their names.
WITH now AS MATERIALIZED (SELECT clock_timestamp() AS at),
plans AS MATERIALIZED (
	SELECT * FROM json_to_recordset($1::text::json) AS p(name text, spec text, next_spec text, next_due_at timestamptz,
		paused_at timestamptz, paused_until timestamptz, handler text, last timestamptz, next timestamptz,
		coalesced bigint, skipped bigint, ticks_paused bigint, runs json)
),
mine AS MATERIALIZED (
	SELECT s.name FROM {schedules} AS s JOIN plans AS p ON p.name = s.name
	WHERE s.spec = p.spec AND s.next_spec = p.next_spec AND s.next_due_at IS NOT DISTINCT FROM p.next_due_at
		AND s.paused_at IS NOT DISTINCT FROM p.paused_at AND s.paused_until IS NOT DISTINCT FROM p.paused_until
	ORDER BY s.name
	FOR UPDATE OF s SKIP LOCKED
),
inserted AS (
	INSERT INTO {runs} (schedule, handler, due_at, backfill, priority, run_at, own_attempts, max_attempts, key,
		payload, queued_by, queued_note)
	SELECT p.name, p.handler, r.due_at, r.backfill, r.priority,
		coalesce(r.run_at, now.at + r.run_in * interval '1 microsecond'), r.attempts, r.attempts, r.key,
		decode(r.payload, 'base64'), r.by, r.note
	FROM mine JOIN plans AS p ON p.name = mine.name, now, json_to_recordset(p.runs) AS r(due_at timestamptz,
		backfill boolean, priority smallint, run_at timestamptz, run_in bigint, attempts integer, key text,
		payload text, by text, note text)
	ORDER BY p.name COLLATE "C", r.due_at
	ON CONFLICT DO NOTHING
	RETURNING schedule
),
done AS (
	SELECT p.*, n.queued, p.coalesced + json_array_length(p.runs) - n.queued AS refused
	FROM mine JOIN plans AS p ON p.name = mine.name,
		LATERAL (SELECT count(*) AS queued FROM inserted AS i WHERE i.schedule = p.name COLLATE "C") AS n
)
UPDATE {schedules} AS s SET next_spec = s.spec, next_due_at = d.next, last_due_at = greatest(s.last_due_at, d.last),
	ticks_queued = s.ticks_queued + d.queued, ticks_coalesced = s.ticks_coalesced + d.refused,
	ticks_skipped = s.ticks_skipped + d.skipped, ticks_paused = s.ticks_paused + d.ticks_paused
FROM done AS d WHERE s.name = d.name COLLATE "C"
RETURNING s.name, d.queued, d.refused, d.skipped, d.ticks_paused
