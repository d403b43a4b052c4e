-- name: layout
SELECT l.shards, l.epoch FROM {layout} AS l WHERE l.id = 1

-- name: set_layout
UPDATE {layout} SET shards = {shards}, epoch = epoch + 1 WHERE id = 1 AND shards <> {shards}

-- name: unknown
now AS MATERIALIZED (SELECT pg_catalog.clock_timestamp() AS at),
-- Topics whose messages wait because they have no sink or no free place. The query takes one step
-- per topic, no matter how many messages it has.
topics(topic) AS (
	(SELECT m.topic FROM {messages} AS m WHERE m.state = 'pending' AND {all} = 0 ORDER BY m.topic LIMIT 1)
	UNION ALL
	SELECT (SELECT m.topic FROM {messages} AS m WHERE m.state = 'pending' AND m.topic > t.topic
		ORDER BY m.topic LIMIT 1)
	FROM topics AS t WHERE t.topic IS NOT NULL
),
unknown AS MATERIALIZED (
	SELECT t.topic FROM topics AS t
	WHERE t.topic IS NOT NULL
		AND t.topic NOT IN (
			SELECT k.value FROM pg_catalog.json_array_elements_text({topics_with_sinks}::json) AS k(value))
	UNION
	SELECT k.value COLLATE "C" FROM pg_catalog.json_array_elements_text({full_topics}::json) AS k(value)
)

-- name: edge
-- Where the scan in row order ends. Messages after this row are searched key by key.
edge AS MATERIALIZED (
	SELECT m.seq FROM {messages} AS m WHERE m.state = 'pending' ORDER BY m.seq OFFSET {window} LIMIT 1
)

-- name: inside
m.seq < coalesce((SELECT e.seq FROM edge AS e), 9223372036854775807)

-- name: free
m.topic NOT IN (SELECT u.topic FROM unknown AS u)
	AND (m.key = '' OR NOT EXISTS (
		SELECT FROM {messages} AS e
		WHERE e.key = m.key AND (e.key, e.seq) < (m.key, m.seq) -- keeps the planner from using an index of seq alone
			AND e.state = 'pending' AND e.tried > 0 AND e.key <> ''))
	AND (m.key = '' OR {stop} = 0 OR NOT EXISTS (
		SELECT FROM {messages} AS e
		WHERE e.key = m.key AND (e.key, e.seq) < (m.key, m.seq) AND e.state = 'dead' AND e.key <> ''))
	AND (m.key = '' OR NOT EXISTS (
		SELECT FROM unknown AS u
		WHERE m.seq > (SELECT e.seq FROM {messages} AS e
			WHERE e.state = 'pending' AND e.topic = u.topic AND e.key = m.key ORDER BY e.seq LIMIT 1)))

-- name: mine
m.key_hash % {shards} = {shard}
	AND m.key NOT IN (SELECT k.value FROM pg_catalog.json_array_elements_text({keys}::json) AS k(value))
	AND m.seq NOT IN (SELECT k.value::bigint FROM pg_catalog.json_array_elements_text({ids}::json) AS k(value))
	AND {free}

-- name: again
m.state = 'pending' AND m.tried > 0
	AND (m.key = '' OR NOT EXISTS (
		SELECT FROM {messages} AS e
		WHERE e.key = m.key AND (e.key, e.seq) < (m.key, m.seq) AND e.state = 'pending' AND e.tried = 0))

-- name: delivery
d.seq, pg_catalog.uuid_send(d.message_id), d.topic, d.key, d.key_hash, d.payload, d.headers, d.attempts,
	d.attempts - d.tried, d.crashes,
	d.requeued_at IS NOT NULL, (extract(epoch FROM (SELECT at FROM now) - d.created_at) * 1000000)::bigint,
	(extract(epoch FROM d.next_attempt_at - d.failing_since) * 1000000)::bigint

-- name: due
WITH RECURSIVE {unknown},
{edge},
fresh AS MATERIALIZED (
	SELECT m.* FROM {messages} AS m
	WHERE m.state = 'pending' AND {inside} AND m.tried = 0
		AND {mine}
	ORDER BY m.seq LIMIT {limit}
),
retried AS MATERIALIZED (
	SELECT m.* FROM {messages} AS m
	WHERE {again} AND m.next_attempt_at <= (SELECT at FROM now)
		AND {mine}
	ORDER BY m.next_attempt_at LIMIT {limit}
),
found AS (SELECT * FROM fresh UNION ALL SELECT * FROM retried ORDER BY seq LIMIT {limit}),
due AS (
	SELECT b.* FROM (SELECT f.*, sum(octet_length(f.payload)) OVER (ORDER BY f.seq) - octet_length(f.payload) AS ahead
		FROM found AS f) AS b
	WHERE b.ahead < {bytes}
)
SELECT l.shards, l.epoch,
	(SELECT (extract(epoch FROM m.next_attempt_at - (SELECT at FROM now)) * 1000000)::bigint FROM {messages} AS m
		WHERE {again} AND m.next_attempt_at > (SELECT at FROM now)
			AND {mine}
		ORDER BY m.next_attempt_at LIMIT 1),
	(SELECT e.seq FROM edge AS e), {delivery}
FROM {layout} AS l LEFT JOIN due AS d ON true
WHERE l.id = 1
ORDER BY d.seq

-- name: due_live
-- Messages that were appended after the last requeued message and have no requeued message before
-- them in their key.
WITH RECURSIVE {unknown},
last AS MATERIALIZED (
	SELECT max(m.seq) AS seq FROM {messages} AS m WHERE m.state = 'pending' AND m.requeued_at IS NOT NULL
),
live AS MATERIALIZED (
	SELECT m.* FROM {messages} AS m
	WHERE m.state = 'pending' AND m.seq > (SELECT l.seq FROM last AS l) ORDER BY m.seq LIMIT {window}
)
SELECT {delivery}
FROM (SELECT f.*, sum(octet_length(f.payload)) OVER (ORDER BY f.seq) - octet_length(f.payload) AS ahead FROM (
	SELECT m.* FROM live AS m
	WHERE m.tried = 0
		AND (m.key = '' OR NOT EXISTS (
			SELECT FROM {messages} AS e
			WHERE e.state = 'pending' AND e.tried = 0 AND e.key = m.key AND e.seq <= (SELECT l.seq FROM last AS l)))
		AND {mine}
	ORDER BY m.seq LIMIT {limit}
) AS f) AS d
WHERE d.ahead < {bytes}
ORDER BY d.seq

-- name: due_keyless
WITH RECURSIVE {unknown}
SELECT {delivery}
FROM (SELECT f.*, sum(octet_length(f.payload)) OVER (ORDER BY f.seq) - octet_length(f.payload) AS ahead FROM (
	SELECT m.* FROM {messages} AS m
	WHERE m.state = 'pending' AND m.tried = 0 AND m.key = ''
		AND {mine}
	ORDER BY m.seq LIMIT {limit}
) AS f) AS d
WHERE d.ahead < {bytes}
ORDER BY d.seq

-- name: page
-- The first message of each of the next keys. The query takes one step per key, no matter how many
-- messages it has.
keys(key, n) AS (
	SELECT (SELECT m.key FROM {messages} AS m WHERE m.state = 'pending' AND m.tried = 0 AND m.key > {after}
		ORDER BY m.key LIMIT 1), 1
	UNION ALL
	SELECT (SELECT m.key FROM {messages} AS m WHERE m.state = 'pending' AND m.tried = 0 AND m.key > k.key
		ORDER BY m.key LIMIT 1), k.n + 1
	FROM keys AS k WHERE k.key IS NOT NULL AND k.n < {page_size}
),
page AS MATERIALIZED (
	SELECT k.key, (SELECT m.seq FROM {messages} AS m WHERE m.state = 'pending' AND m.tried = 0 AND m.key = k.key
		ORDER BY m.seq LIMIT 1) AS seq
	FROM keys AS k WHERE k.key IS NOT NULL
)

-- name: due_by_key
WITH RECURSIVE {unknown},
{page},
found AS MATERIALIZED (SELECT m.key FROM page AS o JOIN {messages} AS m ON m.seq = o.seq WHERE {mine}),
due AS MATERIALIZED (
	SELECT o.* FROM found AS f CROSS JOIN LATERAL (
		SELECT m.* FROM {messages} AS m
		WHERE m.state = 'pending' AND m.tried = 0 AND m.key = f.key
			AND {mine}
		ORDER BY m.seq LIMIT {most_of_key}) AS o
)
SELECT l.n, l.key, {delivery}
FROM (SELECT count(*) AS n, coalesce(max(o.key), '') AS key FROM page AS o) AS l LEFT JOIN (
	SELECT b.* FROM (
		SELECT f.*, sum(octet_length(f.payload)) OVER (ORDER BY f.key, f.seq) - octet_length(f.payload) AS ahead
		FROM (SELECT * FROM due ORDER BY key, seq LIMIT {limit}) AS f) AS b
	WHERE b.ahead < {bytes}) AS d ON true
ORDER BY d.key, d.seq

-- name: note_begun
-- Locked rows are skipped; their messages are delivered nevertheless.
WITH begun AS MATERIALIZED (
	SELECT * FROM pg_catalog.json_to_recordset({begun}::json)
		AS x(id uuid, seq bigint, attempts integer, crashes integer)
),
mine AS MATERIALIZED (
	SELECT m.seq, x.crashes FROM {messages} AS m JOIN begun AS x ON x.seq = m.seq AND x.id = m.message_id
	WHERE m.seq = ANY (ARRAY(SELECT y.seq FROM begun AS y)) AND m.attempts = x.attempts AND m.state = 'pending'
	ORDER BY m.seq FOR NO KEY UPDATE OF m SKIP LOCKED
)
UPDATE {messages} AS m SET crashes = mine.crashes FROM mine
WHERE m.seq = ANY (ARRAY(SELECT y.seq FROM mine AS y)) AND m.seq = mine.seq

-- name: mark
-- Postgres checks rows again that another relay has written since this statement began, and such
-- rows stay unchanged. Locked rows are skipped and reported as locked. The array makes the planner
-- find the rows by their keys, no matter what the statistics say.
WITH results AS MATERIALIZED (
	SELECT *, pg_catalog.clock_timestamp() - x.took * interval '1 microsecond' AS began
	FROM pg_catalog.json_to_recordset({results}::json) AS x(id uuid, seq bigint, attempts integer, outcome text,
		retry_in bigint, took bigint, node text, error text, most_late bigint)
),
mine AS MATERIALIZED (
	SELECT m.seq, m.attempts FROM {messages} AS m JOIN results AS x ON x.seq = m.seq AND x.id = m.message_id
	WHERE m.seq = ANY (ARRAY(SELECT y.seq FROM results AS y)) AND m.attempts = x.attempts AND m.state = 'pending'
	ORDER BY m.seq FOR NO KEY UPDATE OF m SKIP LOCKED
),
written AS (
	UPDATE {messages} AS m SET
		attempts = x.attempts + 1,
		tried = m.tried + 1,
		crashes = 0,
		state = CASE x.outcome WHEN 'ok' THEN 'dispatched' WHEN 'transient' THEN 'pending' ELSE 'dead' END,
		next_attempt_at = CASE x.outcome WHEN 'transient' THEN
			pg_catalog.clock_timestamp() + x.retry_in * interval '1 microsecond' ELSE m.next_attempt_at END,
		failing_since = CASE
			WHEN x.outcome = 'ok' THEN m.failing_since
			WHEN m.failing_since IS NULL OR m.failing_since > x.began THEN x.began -- in the future: the clock was ahead
			WHEN x.began > m.next_attempt_at + x.most_late * interval '1 microsecond' THEN
				m.failing_since + extract(epoch FROM x.began - m.next_attempt_at) * interval '1 second'
			ELSE m.failing_since END,
		finished_at = CASE x.outcome WHEN 'transient' THEN NULL ELSE pg_catalog.clock_timestamp() END,
		last_error = CASE x.outcome WHEN 'ok' THEN m.last_error ELSE x.error END
	FROM mine JOIN results AS x ON x.seq = mine.seq AND x.attempts = mine.attempts
	WHERE m.seq = ANY (ARRAY(SELECT y.seq FROM mine AS y)) AND m.seq = mine.seq
	RETURNING m.seq, m.message_id, m.attempts, x.outcome, x.took, x.node, x.error
),
history AS (
	INSERT INTO {attempts} (message, attempt, at, took, node, outcome, error)
	SELECT w.seq, w.attempts, pg_catalog.clock_timestamp(), w.took, w.node, w.outcome, w.error FROM written AS w
),
forgotten AS (
	DELETE FROM {attempts} AS a
	WHERE a.message = ANY (ARRAY(SELECT w.seq FROM written AS w WHERE w.attempts > {first_attempts} + {last_attempts}))
		AND a.attempt > {first_attempts}
		AND a.attempt <= (SELECT w.attempts - {last_attempts} FROM written AS w WHERE w.seq = a.message)
)
SELECT pg_catalog.uuid_send(w.message_id), false FROM written AS w
UNION ALL
SELECT pg_catalog.uuid_send(x.id), a.message IS NULL
FROM results AS x JOIN {messages} AS m ON m.seq = x.seq AND m.message_id = x.id
	LEFT JOIN {attempts} AS a ON a.message = x.seq AND a.attempt = x.attempts + 1
WHERE m.seq = ANY (ARRAY(SELECT y.seq FROM results AS y)) AND x.seq NOT IN (SELECT w.seq FROM written AS w)
	AND (a.outcome = x.outcome COLLATE "C" AND a.node = x.node COLLATE "C"
		OR a.message IS NULL AND m.attempts = x.attempts AND m.state = 'pending')

-- name: sweep
-- Rows that another session has locked are skipped. Postgres checks rows again that were requeued
-- since this statement began, and such rows stay.
WITH now AS MATERIALIZED (SELECT pg_catalog.clock_timestamp() AS at),
old AS MATERIALIZED (
	SELECT o.seq FROM now, (VALUES ('dispatched' COLLATE "C", {dispatched}), ('dead', {dead})) AS k(state, kept),
		LATERAL (
			SELECT m.seq FROM {messages} AS m
			WHERE m.state = k.state AND m.finished_at < now.at - k.kept * interval '1 microsecond' AND k.kept > 0
			ORDER BY m.finished_at LIMIT {limit}
		) AS o
	LIMIT {limit}
),
messages AS (
	DELETE FROM {messages} WHERE seq = ANY (ARRAY(
		SELECT m.seq FROM {messages} AS m
		WHERE m.seq = ANY (ARRAY(SELECT o.seq FROM old AS o))
			AND m.finished_at < (SELECT at FROM now) - interval '1 microsecond'
				* CASE m.state WHEN 'dispatched' THEN {dispatched} ELSE {dead} END
		ORDER BY m.seq FOR UPDATE OF m SKIP LOCKED))
	RETURNING 1
),
records AS (
	DELETE FROM {inbox} WHERE ctid = ANY (ARRAY(
		SELECT i.ctid FROM {inbox} AS i
		WHERE i.received_at < (SELECT at FROM now) - {inbox_kept} * interval '1 microsecond' AND {inbox_kept} > 0
		ORDER BY i.received_at LIMIT {limit} FOR UPDATE OF i SKIP LOCKED))
	RETURNING 1
)
SELECT (SELECT count(*) FROM messages) + (SELECT count(*) FROM records)

-- name: stats
WITH RECURSIVE {unknown},
{edge},
first AS MATERIALIZED (
	SELECT p.topic, count(*) AS n
	FROM (SELECT m.topic FROM {messages} AS m WHERE m.state = 'pending' ORDER BY m.seq LIMIT {most}) AS p
	GROUP BY p.topic
)
SELECT
	(SELECT count(*) FROM (SELECT FROM {messages} AS m WHERE m.state = 'pending' LIMIT {most}) AS p),
	(SELECT count(*) FROM (SELECT FROM {messages} AS m WHERE m.state = 'dead' AND m.finished_at IS NOT NULL
		ORDER BY m.finished_at LIMIT {most}) AS d),
	(SELECT (extract(epoch FROM max((SELECT at FROM now) - o.next_attempt_at)) * 1000000)::bigint FROM (
		(SELECT m.next_attempt_at FROM {messages} AS m
			WHERE m.state = 'pending' AND {inside} AND m.tried = 0
				AND {free}
			ORDER BY m.seq LIMIT {first})
		UNION ALL
		(SELECT m.next_attempt_at FROM {messages} AS m
			WHERE {again} AND m.next_attempt_at <= (SELECT at FROM now)
				AND {free}
			ORDER BY m.next_attempt_at LIMIT {first})) AS o),
	(SELECT (extract(epoch FROM (SELECT at FROM now) - min(o.since)) * 1000000)::bigint FROM (
		(SELECT coalesce(m.requeued_at, m.created_at) AS since FROM {messages} AS m
			WHERE m.state = 'pending' ORDER BY m.seq LIMIT {window})
		UNION ALL
		(SELECT m.created_at FROM {messages} AS m
			WHERE m.state = 'pending' AND m.seq > (SELECT max(q.seq) FROM {messages} AS q
				WHERE q.state = 'pending' AND q.requeued_at IS NOT NULL)
			ORDER BY m.seq LIMIT 1)) AS o),
	(SELECT e.seq FROM edge AS e), u.topic,
	coalesce((SELECT f.n FROM first AS f WHERE f.topic = u.topic), 1)
FROM now LEFT JOIN (SELECT u.topic FROM unknown AS u ORDER BY u.topic LIMIT {max_unknown}) AS u ON true

-- name: oldest_by_key
WITH RECURSIVE {unknown},
{page}
SELECT l.n, l.key, (
	SELECT coalesce((extract(epoch FROM (SELECT at FROM now) - min(m.next_attempt_at)) * 1000000)::bigint, 0)
	FROM page AS o JOIN {messages} AS m ON m.seq = o.seq WHERE {free})
FROM (SELECT count(*) AS n, coalesce(max(o.key), '') AS key FROM page AS o) AS l

-- name: failing
SELECT f.topic, f.n, (extract(epoch FROM f.failing_since) * 1000000)::bigint,
	(extract(epoch FROM pg_catalog.clock_timestamp() - f.failing_since) * 1000000)::bigint, f.last_error
FROM (
	SELECT o.*, count(*) OVER (PARTITION BY o.topic) AS n,
		row_number() OVER (PARTITION BY o.topic ORDER BY o.failing_since, o.seq) AS place
	FROM (
		SELECT m.seq, m.topic, m.failing_since, m.last_error FROM {messages} AS m
		WHERE m.state = 'pending' AND m.failing_since IS NOT NULL ORDER BY m.failing_since LIMIT {most}) AS o
) AS f
WHERE f.place = 1
ORDER BY f.failing_since, f.topic LIMIT {most_topics}
