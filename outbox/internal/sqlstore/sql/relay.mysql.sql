-- name: layout
{bounded} SELECT {hint} l.shards, l.epoch FROM {layout} AS l WHERE l.id = 1

-- name: set_layout
{bounded} UPDATE {hint} {layout} SET shards = {shards}, epoch = epoch + 1 WHERE id = 1 AND shards <> {shards}

-- name: unknown
SELECT DISTINCT t.pending_topic AS topic FROM {messages} AS t FORCE INDEX (topics)
		WHERE t.pending_topic IS NOT NULL AND (t.pending_topic IN ({full_topics})
			OR t.pending_topic NOT IN ({topics_with_sinks}) AND {all} = 0)

-- name: free
({all} = 1 OR m.topic IN ({topics_with_sinks}))
	AND m.topic NOT IN ({full_topics})
	AND (m.`key` = '' OR m.seq <= COALESCE((
		SELECT e.seq FROM {messages} AS e FORCE INDEX (retried) WHERE e.retried_key = m.`key`
		ORDER BY e.seq LIMIT 1), m.seq))
	AND (m.`key` = '' OR {stop} = 0 OR m.seq < COALESCE((
		SELECT e.seq FROM {messages} AS e FORCE INDEX (dead_keys) WHERE e.dead_key = m.`key`
		ORDER BY e.seq LIMIT 1), m.seq + 1))
	AND (m.`key` = '' OR {all_free} = 1 OR NOT EXISTS (
		SELECT 1 FROM ({unknown}) AS u WHERE m.seq > (
			SELECT e.seq FROM {messages} AS e FORCE INDEX (topics)
			WHERE e.pending_topic = u.topic AND e.`key` = m.`key` ORDER BY e.seq LIMIT 1)))

-- name: mine
MOD(m.key_hash, {shards}) = {shard}
	AND m.`key` NOT IN ({keys})
	AND m.seq NOT IN ({ids})
	AND {free}

-- name: again
(m.`key` = '' OR m.seq < COALESCE((
		SELECT e.seq FROM {messages} AS e FORCE INDEX (fresh) WHERE e.fresh_key = m.`key`
		ORDER BY e.seq LIMIT 1), m.seq + 1))

-- name: edge
(SELECT p.seq FROM {messages} AS p FORCE INDEX (pending) WHERE p.state = 'pending' ORDER BY p.seq LIMIT {window}, 1)

-- name: delivery
d.seq, d.message_id, d.topic, d.`key`, d.key_hash, d.payload, CAST(d.headers AS BINARY), d.attempts,
	d.attempts - d.tried, d.crashes,
	d.requeued_at IS NOT NULL, TIMESTAMPDIFF(MICROSECOND, d.created_at, UTC_TIMESTAMP(6)),
	TIMESTAMPDIFF(MICROSECOND, d.failing_since, d.next_attempt_at)

-- name: due
{bounded} SELECT {hint} l.shards, l.epoch,
	(SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), m.retry_at)
		FROM {messages} AS m FORCE INDEX (backoff)
		WHERE m.retry_at > UTC_TIMESTAMP(6) AND {again}
			AND {mine}
		ORDER BY m.retry_at LIMIT 1),
	{edge}, {delivery}
FROM {layout} AS l
	LEFT JOIN (SELECT b.seq FROM (
		SELECT w.seq, SUM(LENGTH(p.payload)) OVER (ORDER BY w.seq) - LENGTH(p.payload) AS ahead FROM (
		SELECT * FROM (SELECT m.seq FROM {messages} AS m FORCE INDEX (pending)
			WHERE m.state = 'pending' AND m.seq < {inside} AND m.tried = 0
				AND {mine}
			ORDER BY m.seq LIMIT {limit}) AS f
		UNION ALL
		SELECT * FROM (SELECT m.seq FROM {messages} AS m FORCE INDEX (backoff)
			WHERE m.retry_at <= UTC_TIMESTAMP(6) AND {again}
				AND {mine}
			ORDER BY m.retry_at LIMIT {limit}) AS r
		ORDER BY seq LIMIT {limit}
		) AS w STRAIGHT_JOIN {messages} AS p ON p.seq = w.seq) AS b WHERE b.ahead < {bytes}
	) AS o ON 1 = 1
	LEFT JOIN {messages} AS d ON d.seq = o.seq
WHERE l.id = 1
ORDER BY o.seq
LIMIT 18446744073709551615 -- all rows, even if sql_select_limit is set

-- name: last_requeued
(SELECT MAX(q.seq) FROM {messages} AS q FORCE INDEX (requeued) WHERE q.is_requeued = 1)

-- name: due_live
-- Messages that were appended after the last requeued message and have no requeued message before
-- them in their key.
{bounded} SELECT {hint} {delivery}
FROM (SELECT b.seq FROM (
	SELECT w.seq, SUM(LENGTH(p.payload)) OVER (ORDER BY w.seq) - LENGTH(p.payload) AS ahead FROM (
	SELECT m.seq FROM (
		SELECT x.seq FROM {messages} AS x FORCE INDEX (pending)
		WHERE x.state = 'pending' AND x.seq > {last_requeued} ORDER BY x.seq LIMIT {window}
	) AS o STRAIGHT_JOIN {messages} AS m ON m.seq = o.seq
	WHERE m.tried = 0
		AND (m.`key` = '' OR {last_requeued} < COALESCE((
			SELECT e.seq FROM {messages} AS e FORCE INDEX (fresh) WHERE e.fresh_key = m.`key`
			ORDER BY e.seq LIMIT 1), m.seq))
		AND {mine}
	ORDER BY m.seq LIMIT {limit}
	) AS w STRAIGHT_JOIN {messages} AS p ON p.seq = w.seq) AS b WHERE b.ahead < {bytes}
) AS o STRAIGHT_JOIN {messages} AS d ON d.seq = o.seq
ORDER BY d.seq
LIMIT 18446744073709551615

-- name: due_keyless
{bounded} SELECT {hint} {delivery}
FROM (SELECT b.seq FROM (
	SELECT w.seq, SUM(LENGTH(p.payload)) OVER (ORDER BY w.seq) - LENGTH(p.payload) AS ahead FROM (
	SELECT m.seq FROM {messages} AS m FORCE INDEX (fresh)
	WHERE m.fresh_key = ''
		AND {mine}
	ORDER BY m.seq LIMIT {limit}
	) AS w STRAIGHT_JOIN {messages} AS p ON p.seq = w.seq) AS b WHERE b.ahead < {bytes}
) AS o STRAIGHT_JOIN {messages} AS d ON d.seq = o.seq
ORDER BY d.seq
LIMIT 18446744073709551615

-- name: held_keys
-- Keys that are held back. Given a list of values, the server skips each of these keys in one step.
{bounded} SELECT {hint} DISTINCT m.retried_key FROM {messages} AS m FORCE INDEX (retried) WHERE m.retried_key > {after}
ORDER BY m.retried_key LIMIT {most_held}

-- name: page
SELECT x.seq, x.fresh_key FROM {messages} AS x FORCE INDEX (fresh)
		WHERE x.fresh_key > {after} AND x.fresh_key NOT IN ({held}) AND x.fresh_key NOT IN ({keys})
		ORDER BY x.fresh_key, x.seq LIMIT {page_size}

-- name: due_by_key
{bounded} SELECT {hint} l.n, l.`key`, {delivery}
FROM (SELECT COUNT(*) AS n, COALESCE(MAX(o.fresh_key), '') AS `key` FROM (
		{page}
	) AS o) AS l
	LEFT JOIN (SELECT b.seq FROM (
		SELECT w.seq, SUM(LENGTH(p.payload)) OVER (ORDER BY w.`key`, w.seq) - LENGTH(p.payload) AS ahead FROM (
		SELECT m.seq, m.`key` FROM (
		{page}
		) AS o STRAIGHT_JOIN {messages} AS m ON m.seq = o.seq
		WHERE {mine}
		ORDER BY m.`key`, m.seq LIMIT {limit}
		) AS w STRAIGHT_JOIN {messages} AS p ON p.seq = w.seq) AS b WHERE b.ahead < {bytes}
	) AS f ON 1 = 1
	LEFT JOIN {messages} AS d ON d.seq = f.seq
ORDER BY d.`key`, d.seq
LIMIT 18446744073709551615

-- name: note_begun
-- Locked rows are skipped; their messages are delivered nevertheless. With a LIMIT, the server
-- materializes the rows and locks no others. MySQL rejects FOR UPDATE next to a JSON_TABLE that is
-- not in a subquery.
{bounded} UPDATE {hint} (
	SELECT m.seq, x.crashes FROM (SELECT * FROM JSON_TABLE(CONVERT({begun} USING utf8mb4), '$[*]' COLUMNS (
		id CHAR(32) CHARACTER SET ascii PATH '$.id', seq BIGINT PATH '$.seq', attempts INT PATH '$.attempts',
		crashes INT PATH '$.crashes')) AS r) AS x STRAIGHT_JOIN {messages} AS m FORCE INDEX (PRIMARY) ON m.seq = x.seq
	WHERE m.message_id = UNHEX(x.id) AND m.attempts = x.attempts AND m.state = 'pending'
	LIMIT 18446744073709551615 FOR UPDATE SKIP LOCKED
) AS o STRAIGHT_JOIN {messages} AS m FORCE INDEX (PRIMARY) ON m.seq = o.seq
SET m.crashes = o.crashes

-- name: results_as_rows
(SELECT * FROM JSON_TABLE(CONVERT({results} USING utf8mb4), '$[*]' COLUMNS (
		id CHAR(32) CHARACTER SET ascii PATH '$.id', seq BIGINT PATH '$.seq', attempts INT PATH '$.attempts',
		outcome VARCHAR(10) CHARACTER SET utf8mb4 PATH '$.outcome', retry_in BIGINT PATH '$.retry_in',
		took BIGINT PATH '$.took', node VARCHAR(1000) CHARACTER SET utf8mb4 PATH '$.node',
		error LONGTEXT CHARACTER SET utf8mb4 PATH '$.error', most_late BIGINT PATH '$.most_late')) AS r)

-- name: forget
-- A part of mark: deletes attempts, except the first and the latest ones of each message.
{bounded} DELETE {hint} a FROM {results_as_rows} AS x STRAIGHT_JOIN {attempts} AS a FORCE INDEX (PRIMARY)
	ON a.message = x.seq AND a.attempt = x.attempts + 1 - {last_attempts}
WHERE FIND_IN_SET(x.seq, @tickslot_marked) AND a.attempt > {first_attempts};

-- name: mark
-- A row that another transaction has locked is skipped and reported as locked. That transaction may
-- be an interrupted Mark that has inserted an attempt of the row, and reading the attempt would
-- wait for it. So the statements after the first read only rows that the first has locked. The
-- first statement checks, without a lock, which rows exist, because locking a deleted row would
-- lock the gap in its place, and producers may append into that gap.
{bounded} SELECT /*+ SET_VAR(group_concat_max_len = 4194304) */ GROUP_CONCAT(m.seq) INTO @tickslot_marked
FROM (
	SELECT x.* FROM {results_as_rows} AS x STRAIGHT_JOIN {messages} AS e FORCE INDEX (PRIMARY) ON e.seq = x.seq
	LIMIT 18446744073709551615 -- materializes the rows
) AS x STRAIGHT_JOIN {messages} AS m FORCE INDEX (PRIMARY) ON m.seq = x.seq
WHERE m.message_id = UNHEX(x.id) AND m.attempts = x.attempts AND m.state = 'pending'
FOR UPDATE SKIP LOCKED;

{bounded} INSERT {hint} INTO {attempts} (message, attempt, at, took, node, outcome, error)
SELECT x.seq, x.attempts + 1, UTC_TIMESTAMP(6), x.took, x.node, x.outcome, x.error
FROM {results_as_rows} AS x WHERE FIND_IN_SET(x.seq, @tickslot_marked);

{bounded} UPDATE {hint} {results_as_rows} AS x
	STRAIGHT_JOIN {messages} AS m FORCE INDEX (PRIMARY) ON m.seq = x.seq
SET
	m.attempts = x.attempts + 1,
	m.tried = m.tried + 1,
	m.crashes = 0,
	-- Assign failing_since first, because it needs the old next_attempt_at. MySQL does not promise
	-- this order.
	m.failing_since = CASE
		WHEN x.outcome = 'ok' THEN m.failing_since
		WHEN m.failing_since IS NULL OR m.failing_since > UTC_TIMESTAMP(6) - INTERVAL x.took MICROSECOND THEN
			UTC_TIMESTAMP(6) - INTERVAL x.took MICROSECOND -- in the future: the clock was ahead
		WHEN TIMESTAMPDIFF(MICROSECOND, m.next_attempt_at, UTC_TIMESTAMP(6)) - x.took > x.most_late THEN m.failing_since
			+ INTERVAL TIMESTAMPDIFF(MICROSECOND, m.next_attempt_at, UTC_TIMESTAMP(6)) - x.took MICROSECOND
		ELSE m.failing_since END,
	m.state = CASE x.outcome WHEN 'ok' THEN 'dispatched' WHEN 'transient' THEN 'pending' ELSE 'dead' END,
	m.next_attempt_at = CASE x.outcome WHEN 'transient' THEN UTC_TIMESTAMP(6) + INTERVAL x.retry_in MICROSECOND
		ELSE m.next_attempt_at END,
	m.finished_at = CASE x.outcome WHEN 'transient' THEN NULL ELSE UTC_TIMESTAMP(6) END,
	m.last_error = CASE x.outcome WHEN 'ok' THEN m.last_error ELSE x.error END
WHERE FIND_IN_SET(x.seq, @tickslot_marked);

{where}{bounded} SELECT {hint} m.message_id, a.message IS NULL
FROM {results_as_rows} AS x STRAIGHT_JOIN {messages} AS m FORCE INDEX (PRIMARY) ON m.seq = x.seq
	LEFT JOIN {attempts} AS a ON a.message = x.seq AND a.attempt = x.attempts + 1
WHERE m.message_id = UNHEX(x.id)
	AND (a.outcome = CAST(x.outcome AS BINARY) AND CAST(a.node AS BINARY) = CAST(x.node AS BINARY)
		OR a.message IS NULL AND m.attempts = x.attempts AND m.state = 'pending')
LIMIT 18446744073709551615;

-- name: old
SELECT * FROM (
		SELECT * FROM (SELECT m.seq FROM {messages} AS m FORCE INDEX (finished)
			WHERE m.state = 'dispatched' AND m.finished_at < UTC_TIMESTAMP(6) - INTERVAL {dispatched} MICROSECOND
				AND {dispatched} > 0
			ORDER BY m.finished_at LIMIT {limit} FOR UPDATE SKIP LOCKED) AS d
		UNION ALL
		SELECT * FROM (SELECT m.seq FROM {messages} AS m FORCE INDEX (finished)
			WHERE m.state = 'dead' AND m.finished_at < UTC_TIMESTAMP(6) - INTERVAL {dead} MICROSECOND AND {dead} > 0
			ORDER BY m.finished_at LIMIT {limit} FOR UPDATE SKIP LOCKED) AS e
	) AS b LIMIT {limit}

-- name: sweep
{bounded} DELETE {hint} m FROM (
	{old}
) AS o STRAIGHT_JOIN {messages} AS m FORCE INDEX (PRIMARY) ON m.seq = o.seq;

SELECT ROW_COUNT();

-- name: sweep_inbox
{bounded} DELETE {hint} i FROM (
	SELECT r.consumer, r.message_id FROM {inbox} AS r FORCE INDEX (received)
	WHERE r.received_at < UTC_TIMESTAMP(6) - INTERVAL {inbox_kept} MICROSECOND AND {inbox_kept} > 0
	ORDER BY r.received_at LIMIT {limit} FOR UPDATE SKIP LOCKED
) AS o STRAIGHT_JOIN {inbox} AS i FORCE INDEX (PRIMARY) ON i.consumer = o.consumer AND i.message_id = o.message_id;

SELECT ROW_COUNT();

-- name: stats
{bounded} SELECT {hint}
	(SELECT COUNT(*) FROM (SELECT 1 FROM {messages} AS m FORCE INDEX (pending) WHERE m.state = 'pending'
		LIMIT {most}) AS p),
	(SELECT COUNT(*) FROM (SELECT 1 FROM {messages} AS m FORCE INDEX (finished) WHERE m.state = 'dead'
		LIMIT {most}) AS d),
	(SELECT TIMESTAMPDIFF(MICROSECOND, MIN(o.next_attempt_at), UTC_TIMESTAMP(6)) FROM (
		SELECT * FROM (SELECT m.next_attempt_at FROM {messages} AS m FORCE INDEX (pending)
			WHERE m.state = 'pending' AND m.seq < {inside} AND m.tried = 0
				AND {free}
			ORDER BY m.seq LIMIT {first}) AS f
		UNION ALL
		SELECT * FROM (SELECT m.next_attempt_at FROM {messages} AS m FORCE INDEX (backoff)
			WHERE m.retry_at <= UTC_TIMESTAMP(6) AND {again}
				AND {free}
			ORDER BY m.retry_at LIMIT {first}) AS r) AS o),
	(SELECT TIMESTAMPDIFF(MICROSECOND, MIN(o.since), UTC_TIMESTAMP(6)) FROM (
		SELECT * FROM (SELECT COALESCE(m.requeued_at, m.created_at) AS since
			FROM {messages} AS m FORCE INDEX (pending)
			WHERE m.state = 'pending' ORDER BY m.seq LIMIT {window}) AS f
		UNION ALL
		SELECT * FROM (SELECT m.created_at FROM {messages} AS m FORCE INDEX (pending)
			WHERE m.state = 'pending' AND m.seq > {last_requeued} ORDER BY m.seq LIMIT 1) AS r) AS o),
	{edge}, u.topic, COALESCE(u.n, 0)
FROM (SELECT 1 AS one) AS n LEFT JOIN (
	SELECT v.topic, (SELECT LEAST({most}, COUNT(*)) FROM {messages} AS m FORCE INDEX (topics)
		WHERE m.pending_topic = v.topic) AS n
	FROM ({unknown} ORDER BY t.pending_topic LIMIT {max_unknown}) AS v
) AS u ON 1 = 1
LIMIT 18446744073709551615

-- name: oldest_by_key
{bounded} SELECT {hint} l.n, l.`key`, COALESCE((
	SELECT TIMESTAMPDIFF(MICROSECOND, MIN(m.next_attempt_at), UTC_TIMESTAMP(6)) FROM (
		{page}
	) AS o STRAIGHT_JOIN {messages} AS m ON m.seq = o.seq
	WHERE {free}), 0)
FROM (SELECT COUNT(*) AS n, COALESCE(MAX(o.fresh_key), '') AS `key` FROM (
		{page}
	) AS o) AS l

-- name: failing
{bounded} SELECT {hint} f.topic, f.n, TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', f.failing_since),
	TIMESTAMPDIFF(MICROSECOND, f.failing_since, UTC_TIMESTAMP(6)), CAST(f.last_error AS BINARY)
FROM (
	SELECT o.*, COUNT(*) OVER (PARTITION BY o.topic) AS n,
		ROW_NUMBER() OVER (PARTITION BY o.topic ORDER BY o.failing_since, o.seq) AS place
	FROM (
		SELECT m.seq, m.topic, m.failing_since, m.last_error FROM {messages} AS m FORCE INDEX (failing)
		WHERE m.failing_at IS NOT NULL ORDER BY m.failing_at LIMIT {most}) AS o
) AS f
WHERE f.place = 1
ORDER BY f.failing_since, f.topic LIMIT {most_topics}
