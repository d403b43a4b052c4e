-- $1: the handlers of the worker as JSON, $2: its limit for all of them together, $3: how many runs
-- it wants, $4: its name, $5: the lease in microseconds, $6: the random value of the claim, $7: how
-- many more runs it looks at than it wants, $8: how many bytes it carries.
--
-- The columns before those of the run are the same in all rows, and if there is no run there is one
-- row with them: the time, when the next run is due, whether some were left out because of their
-- size, and whether there may be others behind those that were looked at.
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
candidates AS MATERIALIZED (
	SELECT l.name, least(l.room, wanted.runs) AS room, l.room IS NOT NULL AS limited, c.id, c.run_at, c.priority
	FROM limits AS l, wanted, now, LATERAL ({candidates}) AS c
	WHERE wanted.runs > 0 AND coalesce(l.room > 0, true)
),
-- Of a handler with a limit no more rows are locked than it has room for: those that others have
-- locked take none of it. Nobody else is claiming them, who would have to pass over those that are
-- not picked in the end.
bounded AS MATERIALIZED (
	SELECT mine.* FROM limits AS l, wanted, now, LATERAL (
		SELECT c.name, c.id, c.run_at, c.priority FROM (
			SELECT * FROM candidates AS x WHERE x.name = l.name ORDER BY x.priority, x.run_at, x.id
		) AS c, LATERAL ({free}) AS free
		LIMIT least(l.room, wanted.runs)
	) AS mine
	WHERE l.room > 0 AND wanted.runs > 0
),
due AS MATERIALIZED (
	SELECT id, run_at, priority FROM bounded
	UNION ALL
	SELECT id, run_at, priority FROM candidates WHERE NOT limited
	ORDER BY priority, run_at, id
),
-- Rows are locked one after the other, in the order of due, until there are enough.
picked AS MATERIALIZED (
	SELECT c.id, c.priority, c.run_at, free.bytes FROM now, due AS c, LATERAL ({free}) AS free
	LIMIT (SELECT runs FROM wanted)
),
-- The answer has to come whole, through whatever link: the rest is for the next claim.
carried AS MATERIALIZED (
	SELECT p.id FROM (
		SELECT p.id, sum(p.bytes) OVER (ORDER BY p.priority, p.run_at, p.id) - p.bytes AS before FROM picked AS p
	) AS p WHERE p.before < $8::bigint
),
-- Whether fewer were picked than there is room for, and all were looked at that could be.
short AS MATERIALIZED (
	SELECT (SELECT count(*) FROM picked) < (SELECT runs FROM wanted) AND EXISTS (
		SELECT FROM candidates AS c GROUP BY c.name, c.priority, c.room, c.limited
		HAVING count(*) >= c.room + $7::bigint
			AND (NOT c.limited OR (SELECT count(*) FROM bounded AS b WHERE b.name = c.name) < c.room)) AS yes
),
-- The planner expects a tenth of the backlog in picked, so a join with it may read all runs in the
-- order of their ids. It expects an array to be short.
claimed AS (
	UPDATE {runs} AS r SET state = 'running', attempt = r.attempt + 1, worker = $4::text, claim = $6::bigint,
		claimed_at = now.at,
		lease_until = now.at + $5::bigint * interval '1 microsecond',
		max_attempts = coalesce(nullif(r.own_attempts, 0), l.max_attempts)
	FROM limits AS l, now WHERE r.id = ANY (ARRAY(SELECT id FROM carried)) AND r.handler = l.name COLLATE "C"
	RETURNING r.*
),
next AS (
	SELECT min(r.run_at) AS at FROM limits AS l, now, {priorities}, LATERAL (
		SELECT q.run_at FROM {runs} AS q
		WHERE q.state = 'queued' AND q.handler = l.name COLLATE "C" AND q.priority = p.priority AND q.run_at > now.at
		ORDER BY q.run_at LIMIT 1
	) AS r
)
SELECT now.at, next.at, (SELECT count(*) FROM carried) < (SELECT count(*) FROM picked), short.yes, r.payload, {columns}
FROM now CROSS JOIN next CROSS JOIN short LEFT JOIN claimed AS r ON true
ORDER BY r.priority, r.run_at, r.id
