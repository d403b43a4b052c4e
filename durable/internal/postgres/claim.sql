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
-- Each handler and priority has its range of an index, which begins with what is most urgent.
-- Others may be claiming the same, so a handler without a limit offers some more than are wanted.
due AS MATERIALIZED (
	SELECT c.id, c.max_attempts FROM (
		SELECT r.id, r.run_at, p.priority, l.max_attempts, l.room,
			row_number() OVER (PARTITION BY l.name ORDER BY p.priority, r.run_at, r.id) AS nth
		FROM limits AS l, wanted, now, {priorities}, LATERAL (
			SELECT q.id, q.run_at FROM {runs} AS q
			WHERE q.state = 'queued' AND q.handler = l.name COLLATE "C" AND q.priority = p.priority
				AND q.run_at <= now.at
			ORDER BY q.run_at, q.id
			LIMIT least(l.room, CASE wanted.runs WHEN 0 THEN 0 ELSE wanted.runs + {spare} END)
		) AS r
	) AS c
	WHERE c.nth <= c.room OR c.room IS NULL
	ORDER BY c.priority, c.run_at, c.id
),
-- Rows are locked one after the other, in the order of due, until there are enough.
picked AS MATERIALIZED (
	SELECT mine.id, due.max_attempts FROM due, LATERAL (
		SELECT r.id FROM {runs} AS r WHERE r.id = due.id AND r.state = 'queued' FOR UPDATE SKIP LOCKED
	) AS mine
	LIMIT (SELECT runs FROM wanted)
),
claimed AS (
	UPDATE {runs} AS r SET state = 'running', attempt = r.attempt + 1, worker = $4::text, claimed_at = now.at,
		lease_until = now.at + $5::bigint * interval '1 microsecond',
		max_attempts = coalesce(nullif(r.own_attempts, 0), picked.max_attempts)
	FROM picked, now WHERE r.id = picked.id
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
