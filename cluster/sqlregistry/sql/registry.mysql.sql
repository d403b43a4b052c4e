-- Registry of package cluster on MySQL and MariaDB. Every statement sets a limit on its own
-- duration, because a server that waits for a lock does not notice that its client has
-- disconnected. MariaDB executes comments that begin with M! and ignores hints. MySQL ignores such
-- comments and obeys hints.

-- name: schema
-- The registry of tickslot: running hosts, held leases, and recent events and runs.
--
-- sort is 'host', 'lease', 'event', 'run', 'timer', 'fine' or 'coarse'. For a lease, the columns up
-- to released_at hold what the holder last reported. For the last three sorts, the package
-- documentation explains each column. Times are UTC. Names and IDs are binary, because a collation
-- may treat 'job', 'JOB' and 'job ' as equal. Some clients therefore show them as 0x74... Long IDs
-- are cut and end with a hash.
CREATE TABLE IF NOT EXISTS {table} (
	sort        VARBINARY(8) NOT NULL,
	id          VARBINARY(255) NOT NULL,       -- lease: the name, or slot:name for a semaphore
	lock_name   VARBINARY(512) NOT NULL,       -- run: the timer
	node_id     VARCHAR(300) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, -- machine/pid
	machine     VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	pid         BIGINT NOT NULL,
	holder_id   VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, -- distinguishes processes
	kind        VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, -- run: its outcome
	slot        INT NOT NULL,
	slots       INT NOT NULL,                  -- 0 for a mutex
	fence       BIGINT NOT NULL,
	grant_id    VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, -- distinguishes grants
	acquired_at DATETIME(6),                   -- host: when it started
	renewed_at  DATETIME(6),                   -- host: when it was last seen
	expires_at  DATETIME(6),
	released_at DATETIME(6),                   -- host: when it shut down cleanly
	happened_at DATETIME(6),                   -- event: when it happened; run: when it ended; otherwise NULL
	ttl         BIGINT,                        -- host, in microseconds
	up_for      BIGINT,                        -- host: uptime when last seen, in microseconds
	data        TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, -- the other fields, as JSON
	detail      LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,      -- host, as JSON
	taken       TINYINT NOT NULL DEFAULT 0,    -- whether the last write replaced the row, for use within a statement
	PRIMARY KEY (sort, id),
	KEY recent (sort, happened_at, id),        -- finds the newest events and runs
	KEY named (sort, lock_name, happened_at, id) -- finds the newest runs of a timer
) ENGINE = InnoDB DEFAULT CHARACTER SET = utf8mb4 ROW_FORMAT = DYNAMIC

-- name: now
UTC_TIMESTAMP(6)

-- name: bounded
/*M! SET STATEMENT max_statement_time = {wait_ms} / 1000 FOR */

-- name: hint
/*+ SET_VAR(lock_wait_timeout = {wait_s}) MAX_EXECUTION_TIME({wait_ms}) */

-- name: micros
TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6))

-- name: nth
-- Number of the bucket since 1970. Its width (slots) is in minutes.
(({micros} - j_happened) DIV (60000000 * j_slots))

-- name: rows_in
{bounded} INSERT {hint} INTO {table} (sort, id, lock_name, node_id, machine, pid, holder_id, kind, slot, slots, fence,
	grant_id, acquired_at, renewed_at, expires_at, released_at, happened_at, ttl, up_for, data, detail)
SELECT j_sort, IF(j_sort IN ('fine', 'coarse'), CONCAT(j_id, ':', {nth}), j_id), j_name, j_node,
	j_machine, j_pid, j_holder, j_kind, j_slot,
	-- The result is returned through mysql_insert_id: twice the time, plus one if the host has a
	-- row.
	IF(j_sort = 'host', LAST_INSERT_ID(2 * {micros}) * 0, 0) + j_slots,
	IF(j_sort = 'host' AND j_fence > 0 AND NOT EXISTS (SELECT 1 FROM {table} AS h
		WHERE h.sort = 'host' AND h.id = CAST(j_id AS BINARY)), 0, j_fence), -- not counted without a host row
	j_grant,
	UTC_TIMESTAMP(6) - INTERVAL j_acquired MICROSECOND, UTC_TIMESTAMP(6) - INTERVAL j_renewed MICROSECOND,
	UTC_TIMESTAMP(6) - INTERVAL j_expires MICROSECOND, UTC_TIMESTAMP(6) - INTERVAL j_released MICROSECOND,
	IF(j_sort IN ('fine', 'coarse'), TIMESTAMP'1970-01-01 00:00:00' + INTERVAL (60 * j_slots * {nth}) SECOND,
		UTC_TIMESTAMP(6) - INTERVAL j_happened MICROSECOND), j_ttl, j_up_for, j_data, j_detail
FROM JSON_TABLE(CONVERT({rows} USING utf8mb4), '$[*]' COLUMNS (
	j_sort VARCHAR(8) CHARACTER SET utf8mb4 PATH '$.sort', j_id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.id',
	j_name VARCHAR(512) CHARACTER SET utf8mb4 PATH '$.lock_name',
	j_node VARCHAR(300) CHARACTER SET utf8mb4 PATH '$.node_id',
	j_machine VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.machine', j_pid BIGINT PATH '$.pid',
	j_holder VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.holder_id',
	j_kind VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.kind',
	j_slot INT PATH '$.slot', j_slots INT PATH '$.slots', j_fence BIGINT PATH '$.fence',
	j_grant VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.grant_id',
	j_acquired BIGINT PATH '$.acquired', j_renewed BIGINT PATH '$.renewed', j_expires BIGINT PATH '$.expires',
	j_released BIGINT PATH '$.released', j_happened BIGINT PATH '$.happened', j_ttl BIGINT PATH '$.ttl',
	j_up_for BIGINT PATH '$.up_for', j_data TEXT CHARACTER SET utf8mb4 PATH '$.data',
	j_detail LONGTEXT CHARACTER SET utf8mb4 PATH '$.detail')) AS x
WHERE (j_sort <> 'host' OR j_detail IS NOT NULL
	OR EXISTS (SELECT 1 FROM {table} AS h WHERE h.sort = 'host' AND h.id = CAST(j_id AS BINARY)))

-- name: write
{rows_in}
{replace}

-- name: write_counted
-- The row of the host is locked, so that a batch that arrives twice waits for itself and is counted
-- once.
{rows_in}
	AND (j_sort NOT IN ('timer', 'fine', 'coarse') OR EXISTS (SELECT 1 FROM {table} AS m
		WHERE m.sort = 'host' AND m.id = {host_id} AND m.fence < {number} AND m.up_for <= {up_for} FOR UPDATE))
{replace}

-- name: replaced
-- Whether a column is replaced. For a timer: whether the last run is replaced.
IF(sort = 'timer', taken >= 9, taken)

-- name: last_success
COALESCE(GREATEST(released_at, VALUES(released_at)), released_at, VALUES(released_at))

-- name: old_since
-- When the first counted failure of the row ended, or NULL if none counts: see taken.
CASE taken DIV 3 % 3 WHEN 2 THEN acquired_at WHEN 1 THEN expires_at END

-- name: new_since
CASE taken % 3 WHEN 2 THEN VALUES(acquired_at) WHEN 1 THEN VALUES(expires_at) END

-- name: old_until
IF(taken DIV 3 % 3, expires_at, NULL)

-- name: new_until
IF(taken % 3, VALUES(expires_at), NULL)

-- name: replace
ON DUPLICATE KEY UPDATE
	-- Each assignment sees the earlier ones, so taken keeps the decisions made on the old values.
	taken = CASE sort
		WHEN 'host' THEN VALUES(up_for) >= up_for
		WHEN 'lease' THEN CASE
			WHEN CAST(machine AS BINARY) = CAST(VALUES(machine) AS BINARY) AND pid = VALUES(pid)
				AND CAST(holder_id AS BINARY) = CAST(VALUES(holder_id) AS BINARY)
				AND CAST(grant_id AS BINARY) = CAST(VALUES(grant_id) AS BINARY) THEN released_at IS NULL
			WHEN fence <> 0 AND VALUES(fence) <> 0 THEN VALUES(fence) > fence
			-- The record is live and the row is over: the row may be a late record of an earlier
			-- holder.
			WHEN VALUES(released_at) IS NULL AND VALUES(expires_at) > UTC_TIMESTAMP(6)
				AND (released_at IS NOT NULL OR expires_at <= UTC_TIMESTAMP(6)) THEN 1
			ELSE VALUES(acquired_at) > acquired_at END
		-- 9 if the last run is replaced, plus 6 if all failures of the row count or 3 if only the
		-- last one does, plus 2 or 1 for the failures of the batch in the same way. See
		-- cluster.Merge.
		WHEN 'timer' THEN IF(VALUES(renewed_at) >= renewed_at, 9, 0)
			+ CASE WHEN up_for = 0 THEN 0 WHEN {last_success} IS NULL OR acquired_at > {last_success} THEN 6
				WHEN expires_at > {last_success} THEN 3 ELSE 0 END
			+ CASE WHEN VALUES(up_for) = 0 THEN 0
				WHEN {last_success} IS NULL OR VALUES(acquired_at) > {last_success} THEN 2
				WHEN VALUES(expires_at) > {last_success} THEN 1 ELSE 0 END
		ELSE 0 END, -- events and runs are written only once
	lock_name = IF({replaced}, VALUES(lock_name), lock_name), node_id = IF({replaced}, VALUES(node_id), node_id),
	machine = IF({replaced}, VALUES(machine), machine),
	pid = CASE WHEN sort IN ('fine', 'coarse') THEN pid + VALUES(pid) WHEN {replaced} THEN VALUES(pid) ELSE pid END,
	holder_id = IF({replaced}, VALUES(holder_id), holder_id), kind = IF({replaced}, VALUES(kind), kind),
	slot = IF({replaced}, VALUES(slot), slot),
	fence = CASE WHEN sort IN ('fine', 'coarse') THEN fence + VALUES(fence)
		-- the number of the last counted batch
		WHEN sort = 'host' THEN IF(taken, GREATEST(fence, VALUES(fence)), fence)
		WHEN {replaced} THEN VALUES(fence) ELSE fence END,
	grant_id = IF(sort = 'timer', RIGHT(CONCAT(grant_id, VALUES(grant_id)), {max_outcomes}),
		IF(taken, VALUES(grant_id), grant_id)),
	-- Columns computed from others must be assigned before them.
	up_for = CASE WHEN sort IN ('fine', 'coarse') THEN up_for + VALUES(up_for)
		WHEN sort = 'timer' THEN CASE taken DIV 3 % 3 WHEN 2 THEN up_for ELSE taken DIV 3 % 3 END
			+ CASE taken % 3 WHEN 2 THEN VALUES(up_for) ELSE taken % 3 END
		WHEN taken THEN VALUES(up_for) ELSE up_for END,
	acquired_at = IF(sort = 'timer',
		LEAST(COALESCE({old_since}, {new_since}), COALESCE({new_since}, {old_since})),
		IF(taken, VALUES(acquired_at), acquired_at)),
	renewed_at = IF({replaced}, VALUES(renewed_at), renewed_at),
	expires_at = IF(sort = 'timer',
		GREATEST(COALESCE({old_until}, {new_until}), COALESCE({new_until}, {old_until})),
		IF(taken, VALUES(expires_at), expires_at)),
	released_at = IF(sort = 'timer', {last_success}, IF(taken, VALUES(released_at), released_at)),
	ttl = IF(sort IN ('fine', 'coarse'), GREATEST(ttl, VALUES(ttl)), IF(taken, VALUES(ttl), ttl)),
	data = IF({replaced}, VALUES(data), data),
	detail = IF(taken, COALESCE(VALUES(detail), detail), detail),
	slots = IF(sort = 'host' AND detail IS NOT NULL, LAST_INSERT_ID(2 * {micros} + 1) * 0, 0)
		+ IF(taken, VALUES(slots), slots)

-- name: columns
SELECT {hint} t.sort, t.id, t.lock_name, CAST(t.machine AS BINARY), t.pid, CAST(t.holder_id AS BINARY),
	CAST(t.kind AS BINARY),
	t.slot, t.slots, t.fence, CAST(t.grant_id AS BINARY),
	TIMESTAMPDIFF(MICROSECOND, t.acquired_at, UTC_TIMESTAMP(6)),
	TIMESTAMPDIFF(MICROSECOND, t.renewed_at, UTC_TIMESTAMP(6)),
	TIMESTAMPDIFF(MICROSECOND, t.expires_at, UTC_TIMESTAMP(6)),
	TIMESTAMPDIFF(MICROSECOND, t.released_at, UTC_TIMESTAMP(6)),
	TIMESTAMPDIFF(MICROSECOND, t.happened_at, UTC_TIMESTAMP(6)),
	t.ttl, t.up_for, CAST(t.data AS BINARY), CAST(t.detail AS BINARY)

-- name: read
{bounded} {columns}
FROM (
	SELECT * FROM {table} WHERE sort = 'host' AND detail IS NOT NULL
	UNION ALL
	SELECT * FROM {table} WHERE sort = 'lease'
	UNION ALL
	SELECT * FROM (SELECT * FROM {table} WHERE sort = 'event' ORDER BY happened_at DESC, id DESC LIMIT {events}) AS e
	UNION ALL
	SELECT * FROM (SELECT * FROM {table} WHERE sort = 'run' ORDER BY happened_at DESC, id DESC LIMIT {runs}) AS r
	UNION ALL
	SELECT * FROM (SELECT * FROM {table} WHERE sort = 'timer'
		ORDER BY up_for > 0 DESC, renewed_at DESC LIMIT {timers}) AS f
) AS t
LIMIT 18446744073709551615 -- no limit, regardless of sql_select_limit

-- name: timer_runs
{bounded} {columns}
FROM {table} AS t WHERE t.sort = 'run' AND t.lock_name = {timer}
ORDER BY t.happened_at DESC, t.id DESC LIMIT {runs_per_timer}

-- name: buckets
{bounded} {columns}
FROM {table} AS t WHERE t.sort IN ('fine', 'coarse') AND t.lock_name = {timer}
LIMIT 18446744073709551615

-- name: host_is_old
o.renewed_at < {now} - INTERVAL GREATEST({hosts}, 3 * o.ttl) MICROSECOND

-- name: lease_is_old
GREATEST(o.renewed_at, IF(o.released_at IS NULL, o.expires_at, o.renewed_at)) < {now} - INTERVAL {leases} MICROSECOND

-- name: timer_is_old
o.renewed_at < {now} - INTERVAL {runs} MICROSECOND

-- name: sweep
-- The statement locks the rows that it reads, and those of timers, hosts and leases last, because
-- hosts write these all the time. At read committed it does not lock them, so they are checked
-- again.
{bounded} DELETE {hint} o FROM {table} AS o JOIN (
	SELECT * FROM (SELECT sort, id FROM (SELECT sort, id, happened_at,
			ROW_NUMBER() OVER (ORDER BY happened_at DESC, id DESC) AS n
			FROM {table} WHERE sort = 'event') AS o
		WHERE n > {max_events} OR happened_at < {now} - INTERVAL {events} MICROSECOND LIMIT {limit}) AS e
	UNION ALL
	SELECT * FROM (SELECT sort, id FROM (
			SELECT sort, id FROM {table} WHERE sort = 'run' AND happened_at < {now} - INTERVAL {runs} MICROSECOND
			UNION
			SELECT sort, id FROM (SELECT sort, id,
				ROW_NUMBER() OVER (PARTITION BY lock_name ORDER BY happened_at DESC, id DESC) AS n
				FROM {table} WHERE sort = 'run' AND lock_name IN (
					SELECT lock_name FROM {table} WHERE sort = 'run'
					GROUP BY lock_name HAVING COUNT(*) > {runs_per_timer})
			) AS x WHERE n > {runs_per_timer}
		) AS y LIMIT {limit}) AS r
	UNION ALL
	SELECT * FROM (SELECT sort, id FROM {table}
		WHERE sort = 'fine' AND happened_at < {now} - INTERVAL {fine} MICROSECOND LIMIT {limit}) AS b
	UNION ALL
	SELECT * FROM (SELECT sort, id FROM {table}
		WHERE sort = 'coarse' AND happened_at < {now} - INTERVAL {coarse} MICROSECOND LIMIT {limit}) AS c
	UNION ALL
	SELECT * FROM (SELECT sort, id FROM {table} AS o WHERE sort = 'timer' AND {timer_is_old} LIMIT {limit}) AS f
	UNION ALL
	SELECT * FROM (SELECT sort, id FROM {table} AS o WHERE sort = 'host' AND {host_is_old} LIMIT {limit}) AS h
	UNION ALL
	SELECT * FROM (SELECT sort, id FROM {table} AS o WHERE sort = 'lease' AND {lease_is_old} LIMIT {limit}) AS l
) AS old ON old.sort = o.sort AND old.id = o.id
WHERE CASE o.sort WHEN 'host' THEN {host_is_old} WHEN 'lease' THEN {lease_is_old} WHEN 'timer' THEN {timer_is_old}
	ELSE 1 END

-- name: simultaneous
SELECT @@SESSION.sql_mode LIKE '%SIMULTANEOUS_ASSIGNMENT%'
