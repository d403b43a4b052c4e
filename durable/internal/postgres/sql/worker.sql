-- name: peers_of
-- The peers in row h: see store.Peers.
SELECT substr(h.peers, 48 * i + 1, 16) AS key, substr(h.peers, 48 * i + 17, 16)::bigint AS seen,
	substr(h.peers, 48 * i + 33, 16)::bigint AS asked
FROM generate_series(0, length(h.peers) / 48 - 1) AS i

-- name: peers_with
-- The peers in row h after an update by worker w, without those that are too old or too many. A
-- NULL field of w leaves the value unchanged. w.us is now.
SELECT string_agg(k.key || lpad(k.seen::text, 16, '0') || lpad(k.asked::text, 16, '0'), '') FROM (
	(SELECT r.* FROM ({peers_of}) AS r
		WHERE r.key <> w.key AND greatest(r.seen, r.asked) > w.us - {unseen_us}
			AND greatest(r.seen, r.asked) <= w.us + {ahead_us}
		ORDER BY greatest(r.seen, r.asked) DESC LIMIT {max_peers} - 1)
	UNION ALL
	SELECT w.key, coalesce(w.seen, max(r.seen), 0), coalesce(w.asked, max(r.asked), 0) FROM ({peers_of}) AS r
	WHERE r.key = w.key
) AS k

-- name: register
-- $1: handlers with their limits, as JSON; $2: the key of the worker. Rows are written in the order
-- of their names, so that workers that register at the same time wait for each other instead of
-- deadlocking.
INSERT INTO {handlers} AS h (name, max_concurrency, max_per_partition, rate, per, seen_at, peers)
SELECT x.name, x.max_concurrency, x.max_per_partition, x.rate, x.per, clock_timestamp(),
	CASE WHEN x.max_concurrency > 1 THEN $2::text || lpad((extract(epoch FROM clock_timestamp())
		* 1000000)::bigint::text, 16, '0') || lpad('', 16, '0') ELSE '' END
FROM (SELECT name, max_concurrency, max_per_partition, rate, per FROM json_to_recordset($1::text::json)
		AS j(name text, max_concurrency integer, max_per_partition integer, rate integer, per bigint)
	UNION ALL SELECT '', 0, 0, 0, 0) AS x
ORDER BY x.name COLLATE "C"
ON CONFLICT (name) DO UPDATE SET max_concurrency = excluded.max_concurrency,
	max_per_partition = excluded.max_per_partition, rate = excluded.rate, per = excluded.per,
	seen_at = excluded.seen_at, peers = CASE excluded.peers WHEN '' THEN h.peers ELSE (
		SELECT ({peers_with}) FROM (SELECT $2::text AS key, us, us AS seen, NULL::bigint AS asked
			FROM (SELECT substr(excluded.peers, 17, 16)::bigint AS us) AS at) AS w) END

-- name: register_schedules
-- $1: schedules as JSON; $2: whether to take over those that have another spec. A row that was seen
-- within the last half minute is not written again, because many workers would write it all the
-- time. If seen_at is in the future, the clock was ahead when the row was written: the next tick is
-- planned again, and a pause that was over by then stays over.
INSERT INTO {schedules} AS s (name, handler, spec, description, seen_at)
SELECT x.name, x.handler, x.spec, x.description, clock_timestamp()
FROM json_to_recordset($1::text::json) AS x(name text, handler text, spec text, description text)
LEFT JOIN {schedules} AS is_there ON is_there.name = x.name COLLATE "C"
WHERE $2::boolean OR is_there.name IS NULL OR is_there.spec = ''
	OR is_there.spec = x.spec COLLATE "C" AND (is_there.seen_at < clock_timestamp() - interval '30 s'
		OR is_there.seen_at > clock_timestamp() + {ahead})
ORDER BY x.name COLLATE "C"
ON CONFLICT (name) DO UPDATE SET spec = excluded.spec, seen_at = excluded.seen_at,
	next_spec = CASE WHEN s.seen_at > excluded.seen_at + {ahead} THEN '' ELSE s.next_spec END,
	paused_at = CASE WHEN s.seen_at > excluded.seen_at + {ahead} AND s.paused_until > excluded.seen_at
		AND s.paused_until <= s.seen_at THEN NULL ELSE s.paused_at END,
	paused_until = CASE WHEN s.seen_at > excluded.seen_at + {ahead} AND s.paused_until > excluded.seen_at
		AND s.paused_until <= s.seen_at THEN NULL ELSE s.paused_until END,
	handler = CASE WHEN $2::boolean OR s.spec = '' THEN excluded.handler ELSE s.handler END,
	description = CASE WHEN $2::boolean OR s.spec = '' THEN excluded.description ELSE s.description END
WHERE $2::boolean OR s.spec IN ('', excluded.spec)

-- name: due
-- $1, $2: plan_at and name of the schedule after which to begin; $3: the maximum number of
-- schedules. Values that are the same in all rows are computed once, and each part reads only the
-- rows that it returns.
WITH now AS MATERIALIZED (SELECT clock_timestamp() AS at),
next AS MATERIALIZED (
	SELECT min(n.plan_at) AS at FROM (
		SELECT s.plan_at FROM {schedules} AS s WHERE s.plan_at > (SELECT at FROM now) ORDER BY s.plan_at LIMIT 1) AS n
),
due AS MATERIALIZED (
	SELECT s.* FROM {schedules} AS s
	WHERE (s.plan_at, s.name) > ($1::text::timestamptz, $2::text COLLATE "C") AND s.plan_at <= (SELECT at FROM now)
	ORDER BY s.plan_at, s.name LIMIT $3::bigint
)
SELECT now.at, next.at, s.name, s.spec, s.next_spec, s.next_due_at, s.paused_at, s.paused_until
FROM now CROSS JOIN next LEFT JOIN due AS s ON true
ORDER BY s.plan_at, s.name

-- name: materialize
-- $1: plans as JSON. A plan is skipped if its schedule has changed or is locked. The schedules stay
-- locked until the end of the transaction, and their runs are inserted in the order of their names.
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

-- name: claim_lock
-- $1: the handlers of the worker as JSON; $2: its limit for all of them together; $3: how many
-- milliseconds this transaction waits for a lock (0: unchanged). Locks the rows of the limits of
-- these handlers, in the order of their names, and returns the names of those that it could not
-- lock. A later statement that counts runs sees all changes that the previous holders of the locks
-- committed.
WITH wait AS MATERIALIZED (
	SELECT CASE WHEN $3::bigint > 0 THEN set_config('lock_timeout', $3::bigint::text, true) END AS set
),
limits AS MATERIALIZED (
	SELECT h.name FROM wait CROSS JOIN {handlers} AS h
	LEFT JOIN json_to_recordset($1::text::json) AS x(name text, max_concurrency integer, max_per_partition integer,
		rate integer) ON x.name = h.name COLLATE "C"
	WHERE coalesce(wait.set, '') IS NOT NULL AND (
		CASE h.name WHEN '' THEN $2::integer > 0 ELSE greatest(x.max_concurrency, x.max_per_partition, x.rate) > 0 END
		OR h.override IS NOT NULL AND (h.name = '' OR x.name IS NOT NULL))
),
mine AS MATERIALIZED (
	SELECT h.name FROM {handlers} AS h WHERE h.name = ANY (ARRAY(SELECT name FROM limits)) ORDER BY h.name
	FOR UPDATE OF h{skip}
)
SELECT name FROM limits WHERE name NOT IN (SELECT name FROM mine)

-- name: claim_share
-- Waits until no transaction is setting an override, and blocks new overrides until this
-- transaction ends. This is needed because a new limit has no row that an earlier claim could have
-- locked. $1: the number of the lock, which belongs to the tables.
SELECT pg_advisory_xact_lock_shared($1::bigint)

-- name: priorities
(VALUES (-1::smallint), (0::smallint), (1::smallint)) AS p(priority)

-- name: candidates
-- The due runs of handler l, the most urgent first. Each priority is a range of an index. Other
-- sessions may have locked some of the runs, so this selects $7 more than are wanted.
SELECT r.id, r.run_at, p.priority FROM {priorities}, LATERAL (
	SELECT q.id, q.run_at FROM {runs} AS q
	WHERE q.state = 'queued' AND q.handler = l.name COLLATE "C" AND q.priority = p.priority AND q.run_at <= now.at
	ORDER BY q.run_at, q.id
	LIMIT least(l.room, wanted.runs) + $7::bigint
) AS r
ORDER BY p.priority, r.run_at, r.id

-- name: next_partition
-- The first partition of handler p.name after p.key that has queued runs.
SELECT q.partition_key FROM {runs} AS q
WHERE q.state = 'queued' AND q.handler = p.name COLLATE "C" AND q.partition_key > p.key COLLATE "C"
ORDER BY q.partition_key LIMIT 1

-- name: free
-- Locks candidate c. Skips it if another session has locked it, or has claimed it since this
-- statement began; in that case the run may also have failed and wait for its next attempt. The run
-- is found by its id, as in finish.
SELECT r.id, coalesce(octet_length(r.payload), 0) AS bytes FROM {runs} AS r
WHERE r.id = c.id AND r.state || '' = 'queued' AND r.run_at <= now.at
FOR UPDATE SKIP LOCKED

-- name: claim
-- $1: the handlers of the worker as JSON; $2: its limit for all of them together; $3: how many runs
-- it wants; $4: its name; $5: the lease in microseconds; $6: the random value of the claim; $7: how
-- many more runs to read than are wanted; $8: the maximum number of payload bytes; $9: the
-- partition of each handler after which to begin, as JSON; $10: how soon other workers look again,
-- in microseconds, or 0; $11: the key of the worker.
--
-- The columns before the run's own are the same in all rows. If there is no run, there is one row
-- with these columns. They are: the time, when the next run is due or may start, whether runs were
-- left out because of their size, whether runs were left to other workers, whether there may be
-- more runs after those that were read, and the next $9.
WITH RECURSIVE now AS MATERIALIZED (
	SELECT c.at, (extract(epoch FROM c.at) * 1000000)::bigint AS us FROM clock_timestamp() AS c(at)
),
asked AS MATERIALIZED (
	SELECT x.* FROM json_to_recordset($1::text::json) AS x(name text, max_concurrency integer,
		max_per_partition integer, max_attempts integer, rate integer, per bigint)
),
-- The starts of handlers with a rate, in the format of package startlog: n starts, none later than
-- until. Starts that were noted while the clock was ahead count as starts before now.
starts AS MATERIALIZED (
	SELECT x.name, r.n, CASE WHEN substr(right(h.starts, 26), 1, 16)::bigint > now.us + {ahead_us} + x.per / 60
		THEN least(r.until, now.us) ELSE r.until END AS until
	FROM now, asked AS x JOIN {handlers} AS h ON h.name = x.name COLLATE "C", LATERAL (
		SELECT substr(h.starts, 26 * i + 1, 16)::bigint AS until, substr(h.starts, 26 * i + 17, 10)::bigint AS n
		FROM generate_series(0, length(h.starts) / 26 - 1) AS i
	) AS r
	WHERE x.rate > 0
),
-- How many workers this worker shares the limits of handlers with, and when it last looked itself.
-- Workers count if they have looked for runs and have room. Workers that are only registered count,
-- too, until a run has been due for so long that they would have found it.
shared AS MATERIALIZED (
	SELECT h.name, h.peers, coalesce(h.override, x.max_concurrency) AS most, EXISTS (
		SELECT FROM {priorities}, LATERAL (SELECT FROM {runs} AS q
			WHERE q.state = 'queued' AND q.handler = x.name COLLATE "C" AND q.priority = p.priority
				AND q.run_at <= now.at - $10::bigint * interval '1 microsecond' LIMIT 1) AS due) AS waits
	FROM now, asked AS x JOIN {handlers} AS h ON h.name = x.name COLLATE "C"
	WHERE $10::bigint > 0 AND coalesce(h.override, x.max_concurrency) > 1
),
peers AS MATERIALIZED (
	SELECT h.name, h.most, coalesce(max(r.asked) FILTER (WHERE r.key = $11::text), 0) AS asked,
		1 + count(*) FILTER (WHERE r.key <> $11::text
			AND (r.asked > now.us - 2 * $10::bigint OR r.seen > now.us - {unseen_us} AND NOT h.waits)) AS workers
	FROM now CROSS JOIN shared AS h LEFT JOIN LATERAL ({peers_of}) AS r
		ON greatest(r.seen, r.asked) <= now.us + {ahead_us}
	GROUP BY h.name, h.most
),
-- The handlers that may start runs, and how many at most. The xmax of a row tells whether this
-- transaction has locked it. If it has not, the limit was set, or its row deleted, after the rows
-- were locked. Then no run under that limit is claimed.
limits AS MATERIALIZED (
	SELECT l.*, least(l.free, l.share) AS room FROM (SELECT x.name, x.max_attempts, CASE
		WHEN coalesce(h.override, nullif(greatest(x.max_concurrency, x.max_per_partition, x.rate), 0)) IS NULL THEN NULL
		WHEN h.xmax = pg_current_xact_id_if_assigned()::xid
			THEN least(CASE WHEN coalesce(h.override, nullif(x.max_concurrency, 0)) IS NULL THEN $3::bigint
				ELSE greatest(0, coalesce(h.override, x.max_concurrency) - (SELECT count(*) FROM {runs} AS r
					WHERE r.state = 'running' AND r.handler = h.name)) END,
				CASE WHEN x.rate > 0 THEN greatest(0, x.rate - (SELECT coalesce(sum(s.n), 0)::bigint FROM starts AS s
					WHERE s.name = x.name AND s.until > now.us - x.per)) END)
		ELSE 0 END AS free, (SELECT greatest(0, (k.most + k.workers - 1) / k.workers - (SELECT count(*) FROM {runs} AS r
			WHERE r.state = 'running' AND r.handler = h.name AND r.worker = $4::text))
			FROM peers AS k WHERE k.name = x.name) AS share, nullif(x.max_per_partition, 0) AS per,
		nullif(x.rate, 0) AS rate, x.per AS rate_per
	FROM now, asked AS x
	LEFT JOIN {handlers} AS h ON h.name = x.name COLLATE "C"
	WHERE coalesce(h.paused_until <= now.at, true)) AS l
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
first AS MATERIALIZED (
	SELECT l.name, l.per, least(l.room, wanted.runs) AS room, l.room IS NOT NULL AS limited, c.id, c.run_at, c.priority
	FROM limits AS l, wanted, now, LATERAL ({candidates}) AS c
	WHERE wanted.runs > 0 AND coalesce(l.room > 0, true)
),
-- The partitions that have queued runs, with one index probe per partition. Queued runs of a full
-- partition are not read, no matter how many there are.
partitions(name, key, n) AS (
	SELECT p.name, ({next_partition}), 1 FROM (
		SELECT l.name, coalesce($9::text::json ->> l.name, '') AS key FROM limits AS l, wanted
		WHERE l.per IS NOT NULL AND l.room > 0 AND wanted.runs > 0) AS p
	UNION ALL
	SELECT p.name, ({next_partition}), p.n + 1 FROM partitions AS p WHERE p.key IS NOT NULL AND p.n < {partitions}
),
-- How many runs of a partition may start.
rooms AS MATERIALIZED (
	SELECT l.name, k.key, CASE k.key WHEN '' THEN least(l.room, wanted.runs)
		ELSE least(l.room, wanted.runs, l.per - (SELECT count(*) FROM {runs} AS r
			WHERE r.state = 'running' AND r.handler = l.name COLLATE "C" AND r.partition_key = k.key COLLATE "C")) END
		AS room
	FROM wanted, limits AS l JOIN (
		SELECT p.name, p.key FROM partitions AS p WHERE p.key IS NOT NULL
		UNION SELECT f.name, r.partition_key FROM first AS f JOIN {runs} AS r ON r.id = f.id
			WHERE f.per IS NOT NULL AND r.id = ANY (ARRAY(SELECT id FROM first WHERE per IS NOT NULL))
		UNION SELECT l.name, '' FROM limits AS l
	) AS k ON k.name = l.name
	WHERE l.per IS NOT NULL AND l.room > 0 AND wanted.runs > 0
),
candidates AS MATERIALIZED (
	SELECT name, room, limited, id, run_at, priority FROM first WHERE per IS NULL
	UNION ALL
	SELECT l.name, least(l.room, wanted.runs), true, c.id, c.run_at, c.priority
	FROM limits AS l JOIN rooms ON rooms.name = l.name, wanted, now, LATERAL (
		SELECT r.id, r.run_at, p.priority FROM {priorities}, LATERAL (
			SELECT q.id, q.run_at FROM {runs} AS q
			WHERE q.state = 'queued' AND q.handler = l.name COLLATE "C" AND q.partition_key = rooms.key COLLATE "C"
				AND q.priority = p.priority AND q.run_at <= now.at
			ORDER BY q.run_at, q.id LIMIT rooms.room
		) AS r
		ORDER BY p.priority, r.run_at, r.id LIMIT rooms.room
	) AS c
	WHERE rooms.room > 0
),
-- For a handler with a limit, lock no more rows than it has room for. Rows that other sessions have
-- locked do not use up that room. No other worker is claiming these runs at the same time, so none
-- has to skip rows that are locked here but not picked in the end.
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
-- Locks rows one after the other, in the order of due, until there are enough.
picked AS MATERIALIZED (
	SELECT c.id, c.priority, c.run_at, free.bytes FROM now, due AS c, LATERAL ({free}) AS free
	LIMIT (SELECT runs FROM wanted)
),
-- The answer must arrive completely even over a slow link, so the remaining runs are left to the
-- next claim.
carried AS MATERIALIZED (
	SELECT p.id FROM (
		SELECT p.id, sum(p.bytes) OVER (ORDER BY p.priority, p.run_at, p.id) - p.bytes AS before FROM picked AS p
	) AS p WHERE p.before < $8::bigint
),
-- Whether fewer runs were picked than there is room for, although every run that could be read was
-- read.
short AS MATERIALIZED (
	SELECT (SELECT count(*) FROM picked) < (SELECT runs FROM wanted) AND EXISTS (
		SELECT FROM candidates AS c GROUP BY c.name, c.priority, c.room, c.limited
		HAVING count(*) >= c.room + $7::bigint
			AND (NOT c.limited OR (SELECT count(*) FROM bounded AS b WHERE b.name = c.name) < c.room)) AS yes
),
behind AS MATERIALIZED (
	SELECT coalesce(json_object_agg(p.name, p.key)::text, '{}') AS partitions FROM partitions AS p
	WHERE p.n = {partitions} AND p.key IS NOT NULL
),
-- The planner expects picked to have a tenth of the backlog, so for a join it may read all runs in
-- the order of their ids. It expects an array to be short.
claimed AS (
	UPDATE {runs} AS r SET state = 'running', attempt = r.attempt + 1, worker = $4::text, claim = $6::bigint,
		claimed_at = now.at,
		lease_until = now.at + $5::bigint * interval '1 microsecond',
		max_attempts = coalesce(nullif(r.own_attempts, 0), l.max_attempts)
	FROM limits AS l, now WHERE r.id = ANY (ARRAY(SELECT id FROM carried)) AND r.handler = l.name COLLATE "C"
	RETURNING r.*
),
-- The starts, including those of this claim. The 64th latest record also counts all starts before
-- it.
started AS MATERIALIZED (
	SELECT c.handler AS name, count(*) AS n FROM claimed AS c GROUP BY c.handler
),
-- The handlers that have due runs, counting the claimed runs.
work AS MATERIALIZED (
	SELECT l.name, coalesce((SELECT c.n FROM started AS c WHERE c.name = l.name), 0) AS n FROM limits AS l, now
	WHERE (l.rate > 0 OR l.share IS NOT NULL) AND EXISTS (SELECT FROM {priorities}, LATERAL (SELECT FROM {runs} AS q
		WHERE q.state = 'queued' AND q.handler = l.name COLLATE "C" AND q.priority = p.priority
			AND q.run_at <= now.at LIMIT 1) AS due)
),
noted AS MATERIALIZED (
	SELECT g.name, max(g.until) AS until, least(sum(g.n), 9999999999)::bigint AS n FROM (
		SELECT u.name, u.until, u.n, row_number() OVER (PARTITION BY u.name ORDER BY u.until DESC) AS i FROM (
			SELECT r.name, r.until, sum(r.n) AS n FROM (
				SELECT s.name, s.until, s.n FROM starts AS s
				UNION ALL
				SELECT l.name, greatest(now.us - now.us % b.us + b.us,
					(SELECT max(s.until) FROM starts AS s WHERE s.name = l.name)), c.n
				FROM now, started AS c JOIN limits AS l ON l.name = c.name AND l.rate > 0, LATERAL (
					SELECT CASE WHEN l.rate > 60 THEN (l.rate_per + 59) / 60 ELSE 1 END AS us) AS b
			) AS r GROUP BY r.name, r.until
		) AS u
	) AS g GROUP BY g.name, least(g.i, 64)
),
-- Notes that the worker has looked, if that was not noted recently, or that it has no more room.
asks AS MATERIALIZED (
	SELECT k.name, $11::text AS key, now.us, NULL::bigint AS seen, CASE WHEN filled.yes THEN 0 ELSE now.us END AS asked
	FROM now, peers AS k JOIN limits AS l ON l.name = k.name,
		(SELECT (SELECT count(*) FROM picked) >= $3::bigint AS yes) AS filled
	WHERE CASE WHEN filled.yes THEN k.asked > now.us - 2 * $10::bigint
		ELSE k.asked <= now.us - $10::bigint / 2 AND EXISTS (SELECT FROM work WHERE work.name = k.name) END
),
note AS (
	UPDATE {handlers} AS h SET starts = coalesce((
			SELECT string_agg(lpad(n.until::text, 16, '0') || lpad(n.n::text, 10, '0'), '' ORDER BY n.until)
			FROM noted AS n WHERE n.name = h.name COLLATE "C"), h.starts),
		peers = coalesce((SELECT ({peers_with}) FROM asks AS w WHERE w.name = h.name COLLATE "C"), h.peers)
	WHERE h.name = ANY (ARRAY(SELECT c.name FROM started AS c JOIN limits AS l ON l.name = c.name AND l.rate > 0
		UNION SELECT name FROM asks))
),
next AS (
	SELECT min(r.at) AS at FROM (
		SELECT r.run_at AS at FROM limits AS l, now, {priorities}, LATERAL (
			SELECT q.run_at FROM {runs} AS q
			WHERE q.state = 'queued' AND q.handler = l.name COLLATE "C" AND q.priority = p.priority
				AND q.run_at > now.at
			ORDER BY q.run_at LIMIT 1
		) AS r
		UNION ALL
		-- A handler that has reached its rate may start the next run one window after the start
		-- that, counting back from the latest, reaches the rate.
		SELECT now.at + (max(n.until) + l.rate_per - now.us) * interval '1 microsecond'
		FROM now, limits AS l JOIN (
			SELECT n.name, n.until, sum(n.n) OVER (PARTITION BY n.name ORDER BY n.until DESC) AS n FROM noted AS n
		) AS n ON n.name = l.name AND n.n >= l.rate
		WHERE n.until > now.us - l.rate_per AND EXISTS (SELECT FROM work WHERE work.name = l.name)
		GROUP BY now.at, now.us, l.name, l.rate_per
	) AS r
)
SELECT now.at, next.at, (SELECT count(*) FROM carried) < (SELECT count(*) FROM picked),
	EXISTS (SELECT FROM work JOIN limits AS l ON l.name = work.name
		WHERE work.n = l.share AND work.n < l.free AND EXISTS (SELECT FROM {priorities}, LATERAL (
			SELECT FROM {runs} AS q
			WHERE q.state = 'queued' AND q.handler = l.name COLLATE "C" AND q.priority = p.priority
				AND q.run_at <= now.at LIMIT work.n + 1) AS due OFFSET work.n)),
	short.yes, behind.partitions, r.payload, {columns}
FROM now CROSS JOIN next CROSS JOIN short CROSS JOIN behind LEFT JOIN claimed AS r ON true
ORDER BY r.priority, r.run_at, r.id

-- name: renew
-- $1: claims of runs as JSON; $2: the worker; $3: the lease in microseconds. A locked row is
-- skipped and reported as uncertain. Without {skip}, the statement waits for the row. Rows are
-- found by their ids, as in finish.
WITH keys AS MATERIALIZED (
	SELECT * FROM json_to_recordset($1::text::json) AS k(id bigint, attempt integer, claim bigint)
),
mine AS MATERIALIZED (
	SELECT r.id FROM {runs} AS r JOIN keys AS k ON k.id = r.id
	WHERE r.id = ANY (ARRAY(SELECT id FROM keys)) AND r.attempt = k.attempt AND r.state || '' = 'running'
		AND r.claim = k.claim AND r.worker = $2::text
	ORDER BY r.id
	FOR NO KEY UPDATE OF r{skip}
),
renewed AS (
	UPDATE {runs} AS r SET lease_until = clock_timestamp() + $3::bigint * interval '1 microsecond'
	WHERE r.id = ANY (ARRAY(SELECT id FROM mine))
	RETURNING r.id, r.attempt, r.claim, r.canceled_by, r.canceled_note
)
SELECT id, attempt, claim, true, canceled_by, canceled_note FROM renewed
UNION ALL
SELECT r.id, r.attempt, r.claim, false, NULL, NULL FROM {runs} AS r JOIN keys AS k ON k.id = r.id
WHERE r.id = ANY (ARRAY(SELECT id FROM keys)) AND r.attempt = k.attempt AND r.state || '' = 'running'
	AND r.claim = k.claim AND r.worker = $2::text AND r.id NOT IN (SELECT id FROM mine)

-- name: forget_attempts
-- Deletes attempts of the runs in {of}, which has ids and latest attempts. It keeps the first and
-- the latest attempts of each run.
DELETE FROM {attempts} AS a
WHERE a.run_id = ANY (ARRAY(SELECT id FROM {of} WHERE attempt > {first} + {last})) AND a.attempt > {first}
	AND a.attempt <= (SELECT l.attempt - {last} FROM {of} AS l WHERE l.id = a.run_id)

-- name: finish
-- $1: results as JSON; $2: the worker. A row is skipped and reported as uncertain if it is locked
-- or another session has changed it since this statement began.
--
-- Rows are found by an array of their ids. A connection may use a plan that was made while the
-- tables were empty. With a join or the index of running runs, such a plan might now read a whole
-- index. "state || ''" matches no index.
WITH now AS MATERIALIZED (SELECT clock_timestamp() AS at),
results AS MATERIALIZED (
	SELECT * FROM json_to_recordset($1::text::json) AS x(id bigint, attempt integer, claim bigint, outcome text,
		state text, error text, retry_in bigint, took bigint)
),
mine AS MATERIALIZED (
	SELECT r.id, r.attempt, r.claim FROM {runs} AS r JOIN results AS x ON x.id = r.id
	WHERE r.id = ANY (ARRAY(SELECT id FROM results)) AND r.attempt = x.attempt AND r.state || '' = 'running'
		AND r.claim = x.claim AND r.worker = $2::text
	ORDER BY r.id
	FOR NO KEY UPDATE OF r SKIP LOCKED
),
finished AS (
	UPDATE {runs} AS r SET
		state = CASE WHEN x.state = 'queued' AND r.canceled_by IS NOT NULL THEN 'canceled' ELSE x.state END,
		run_at = CASE x.state WHEN 'queued' THEN now.at + x.retry_in * interval '1 microsecond' ELSE r.run_at END,
		uncounted = r.uncounted + CASE x.outcome WHEN 'interrupted' THEN 1 ELSE 0 END,
		failing_since = CASE WHEN x.outcome IN ('ok', 'interrupted', 'canceled') THEN r.failing_since
			ELSE coalesce(r.failing_since, r.claimed_at) END,
		finished_at = CASE WHEN x.state = 'queued' AND r.canceled_by IS NULL THEN NULL ELSE now.at END,
		last_error = coalesce(nullif(x.error, ''), r.last_error),
		lease_until = NULL
	FROM mine JOIN results AS x ON x.id = mine.id AND x.attempt = mine.attempt AND x.claim = mine.claim, now
	WHERE r.id = ANY (ARRAY(SELECT id FROM mine)) AND r.id = mine.id
	RETURNING r.id, r.attempt, r.claim, r.worker, r.claimed_at, x.outcome, x.error, x.took
),
attempts AS (
	INSERT INTO {attempts} (run_id, attempt, worker, started_at, finished_at, outcome, error, claim)
	SELECT f.id, f.attempt, f.worker, f.claimed_at,
		greatest(f.claimed_at, least(now.at, f.claimed_at + f.took * interval '1 microsecond')), f.outcome, f.error,
		f.claim
	FROM finished AS f, now
),
forgotten AS ({forget_attempts})
SELECT id, attempt, claim, true FROM finished
UNION ALL
SELECT x.id, x.attempt, x.claim, true FROM results AS x JOIN {attempts} AS a ON a.run_id = x.id
WHERE a.run_id = ANY (ARRAY(SELECT id FROM results)) AND a.attempt = x.attempt AND a.claim = x.claim
	AND a.outcome = x.outcome COLLATE "C"
UNION ALL
SELECT r.id, r.attempt, r.claim, false FROM {runs} AS r JOIN results AS x ON x.id = r.id
WHERE r.id = ANY (ARRAY(SELECT id FROM results)) AND r.attempt = x.attempt AND r.state || '' = 'running'
	AND r.claim = x.claim AND r.worker = $2::text AND r.id NOT IN (SELECT id FROM mine)

-- name: reclaim
-- $1: the maximum number of runs; $2: the error to note; $3: after how many lost leases a run is
-- dead (0: never).
WITH now AS MATERIALIZED (SELECT clock_timestamp() AS at),
expired AS MATERIALIZED (
	SELECT r.id FROM {runs} AS r, now WHERE r.state = 'running' AND r.lease_until <= now.at
	ORDER BY r.lease_until LIMIT $1::bigint
	FOR NO KEY UPDATE OF r SKIP LOCKED
),
reclaimed AS (
	UPDATE {runs} AS r SET
		state = CASE WHEN r.canceled_by IS NOT NULL THEN 'canceled'
			WHEN r.attempt >= r.uncounted + nullif(r.max_attempts, 0)
				OR r.crashes + 1 >= nullif($3::integer, 0) THEN 'dead'
			ELSE 'queued' END,
		finished_at = CASE WHEN r.canceled_by IS NOT NULL OR r.attempt >= r.uncounted + nullif(r.max_attempts, 0)
			OR r.crashes + 1 >= nullif($3::integer, 0) THEN now.at END,
		crashes = r.crashes + 1,
		failing_since = coalesce(r.failing_since, r.claimed_at),
		last_error = $2::text,
		lease_until = NULL
	FROM now WHERE r.id = ANY (ARRAY(SELECT id FROM expired))
	RETURNING r.id, r.attempt, r.claim,
		CASE r.max_attempts WHEN 0 THEN 0 ELSE r.uncounted + r.max_attempts END AS max_attempts,
		r.crashes, r.handler, r.worker, r.schedule, r.state,
		r.claimed_at
),
attempts AS (
	INSERT INTO {attempts} (run_id, attempt, worker, started_at, finished_at, outcome, error, claim)
	SELECT r.id, r.attempt, r.worker, r.claimed_at, now.at, 'lease_lost', $2::text, r.claim FROM reclaimed AS r, now
),
forgotten AS ({forget_attempts})
SELECT id, attempt, claim, max_attempts, crashes, handler, worker, coalesce(schedule, ''), state = 'dead',
	state = 'canceled'
FROM reclaimed

-- name: sweep
-- $1, $2, $3: how long succeeded, dead and canceled runs are kept; $4: how long schedules and
-- handlers that no worker has are kept, all in microseconds or NULL; $5: the maximum number of rows
-- of each kind to delete. Postgres checks a row again if it was queued again, seen again or paused
-- since this statement began, and such a row stays. A row with a pause or a limit in force also
-- stays. Otherwise a stopped schedule or handler would run as soon as a worker registers it again.
WITH now AS MATERIALIZED (SELECT clock_timestamp() AS at),
old AS MATERIALIZED (
	SELECT d.id FROM now, (VALUES ('succeeded' COLLATE "C", $1::bigint), ('dead', $2::bigint), ('canceled', $3::bigint))
		AS k(state, kept), LATERAL (
			SELECT r.id FROM {runs} AS r
			WHERE r.state = k.state AND r.finished_at < now.at - k.kept * interval '1 microsecond'
			ORDER BY r.finished_at LIMIT $5::bigint
		) AS d
	LIMIT $5::bigint
),
runs AS (
	DELETE FROM {runs} WHERE id = ANY (ARRAY(
		SELECT r.id FROM {runs} AS r, now
		WHERE r.id = ANY (ARRAY(SELECT id FROM old)) AND r.finished_at < now.at - interval '1 microsecond'
			* CASE r.state WHEN 'succeeded' THEN $1::bigint WHEN 'dead' THEN $2::bigint ELSE $3::bigint END
		ORDER BY r.id
		FOR UPDATE OF r SKIP LOCKED))
	RETURNING 1
),
schedules AS (
	DELETE FROM {schedules} WHERE name IN (
		SELECT s.name FROM {schedules} AS s, now
		WHERE s.seen_at < now.at - $4::bigint * interval '1 microsecond'
			AND coalesce(s.paused_until <= now.at, true)
		ORDER BY s.name LIMIT $5::bigint FOR UPDATE OF s SKIP LOCKED)
	RETURNING 1
),
handlers AS (
	DELETE FROM {handlers} WHERE name IN (
		SELECT h.name FROM {handlers} AS h, now
		WHERE h.name <> '' AND h.seen_at < now.at - $4::bigint * interval '1 microsecond'
			AND h.override IS NULL AND coalesce(h.paused_until <= now.at, true)
			AND coalesce(nullif(substr(right(h.starts, 26), 1, 16), '')::bigint
				< extract(epoch FROM now.at) * 1000000 - {max_per}, true)
		ORDER BY h.name LIMIT $5::bigint FOR UPDATE OF h SKIP LOCKED)
	RETURNING 1
)
SELECT (SELECT count(*) FROM runs) + (SELECT count(*) FROM schedules) + (SELECT count(*) FROM handlers)
