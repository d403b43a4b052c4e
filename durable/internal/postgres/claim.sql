-- $1: the handlers of the worker as JSON, $2: its limit for all of them together, $3: how many runs
-- it wants, $4: its name, $5: the lease in microseconds.
--
-- The columns before those of the run are the same in all rows, and if there is no run there is one
-- row with them: the time, when the next run is due, and how many were candidates.
WITH now AS MATERIALIZED (SELECT clock_timestamp() AS at),
-- The handlers that may start runs, and how many at most. A limit whose row is not locked by this
-- transaction, which its xmax tells, was set, or its row deleted, since the rows were locked: then
-- nothing is claimed that it limits.
limits AS MATERIALIZED (
	SELECT x.name, x.max_attempts, CASE
		WHEN coalesce(h.override, nullif(x.max_concurrency, 0)) IS NULL THEN NULL
		WHEN h.xmax = pg_current_xact_id_if_assigned()::xid
			THEN greatest(0, coalesce(h.override, x.max_concurrency) - (SELECT count(*) FROM {runs} AS r
				WHERE r.state = 'running' AND r.handler = h.name))
		ELSE 0 END AS room
	FROM now, json_to_recordset($1::text::json) AS x(name text, max_concurrency integer, max_attempts integer)
	LEFT JOIN {handlers} AS h ON h.name = x.name COLLATE "C"
	WHERE coalesce(h.paused_until <= now.at, true)
),
wanted AS MATERIALIZED (
	SELECT CASE
		WHEN coalesce(h.override, nullif($2::integer, 0)) IS NULL THEN $3::bigint
		WHEN h.xmax = pg_current_xact_id_if_assigned()::xid
			THEN least($3::bigint, greatest(0, coalesce(h.override, $2::integer) - (SELECT count(*) FROM {runs} AS r
				WHERE r.state = 'running')))
		ELSE 0 END AS runs
	FROM (SELECT) AS one LEFT JOIN {handlers} AS h ON h.name = ''
),
-- Of a handler with a limit no more rows are locked than it has room for: those that others have
-- locked take none of it. Nobody else is claiming them, who would have to pass over those that are
-- not picked in the end.
bounded AS MATERIALIZED (
	SELECT mine.* FROM limits AS l, wanted, now, LATERAL (
		SELECT c.id, c.run_at, c.priority FROM ({candidates}) AS c, LATERAL ({free}) AS free
		LIMIT least(l.room, wanted.runs)
	) AS mine
	WHERE l.room > 0 AND wanted.runs > 0
),
due AS MATERIALIZED (
	SELECT id, run_at, priority FROM bounded
	UNION ALL
	SELECT c.id, c.run_at, c.priority FROM limits AS l, wanted, now, LATERAL ({candidates}) AS c
	WHERE l.room IS NULL AND wanted.runs > 0
	ORDER BY priority, run_at, id
),
-- Rows are locked one after the other, in the order of due, until there are enough.
picked AS MATERIALIZED (
	SELECT c.id FROM now, due AS c, LATERAL ({free}) AS free
	LIMIT (SELECT runs FROM wanted)
),
-- The planner expects a tenth of the backlog in picked, so a join with it may read all runs in the
-- order of their ids. It expects an array to be short.
claimed AS (
	UPDATE {runs} AS r SET state = 'running', attempt = r.attempt + 1, worker = $4::text, claimed_at = now.at,
		lease_until = now.at + $5::bigint * interval '1 microsecond',
		max_attempts = coalesce(nullif(r.own_attempts, 0), l.max_attempts)
	FROM limits AS l, now WHERE r.id = ANY (ARRAY(SELECT id FROM picked)) AND r.handler = l.name COLLATE "C"
	RETURNING r.*
),
next AS (
	SELECT min(r.run_at) AS at FROM limits AS l, now, {priorities}, LATERAL (
		SELECT q.run_at FROM {runs} AS q
		WHERE q.state = 'queued' AND q.handler = l.name COLLATE "C" AND q.priority = p.priority AND q.run_at > now.at
		ORDER BY q.run_at LIMIT 1
	) AS r
)
SELECT now.at, next.at, (SELECT count(*) FROM due), r.payload, {columns}
FROM now CROSS JOIN next LEFT JOIN claimed AS r ON true
ORDER BY r.priority, r.run_at, r.id
