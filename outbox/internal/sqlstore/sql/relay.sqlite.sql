-- {now} is the current time in µs, exact to the millisecond, and constant within a statement.
-- julianday is the oldest function with milliseconds. round removes the error of its float64.

-- name: now
(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)

-- name: layout
SELECT l.shards, l.epoch FROM {layout} AS l WHERE l.id = 1

-- name: set_layout
UPDATE {layout} SET shards = {shards}, epoch = epoch + 1 WHERE id = 1 AND shards <> {shards}

-- name: unknown
-- Topics whose messages wait because they have no sink or no free place. The query takes one step
-- per topic, no matter how many messages it has.
topics(topic) AS (
	SELECT min(m.topic) FROM {messages} AS m WHERE m.state = 'pending' AND {all} = 0
	UNION ALL
	SELECT (SELECT min(m.topic) FROM {messages} AS m WHERE m.state = 'pending' AND m.topic > t.topic)
	FROM topics AS t WHERE t.topic IS NOT NULL
),
unknown AS MATERIALIZED (
	SELECT t.topic FROM topics AS t
	WHERE t.topic IS NOT NULL AND t.topic NOT IN (SELECT k.value FROM json_each({topics_with_sinks}) AS k)
	UNION
	SELECT k.value FROM json_each({full_topics}) AS k
)

-- name: edge
-- Where the scan in row order ends. Messages after this row are searched key by key.
edge AS MATERIALIZED (
	SELECT m.seq FROM {messages} AS m WHERE m.state = 'pending' ORDER BY m.seq LIMIT 1 OFFSET {window}
)

-- name: inside
m.seq < coalesce((SELECT e.seq FROM edge AS e), 9223372036854775807)

-- name: free
m.topic NOT IN (SELECT u.topic FROM unknown AS u)
	AND (m.key = '' OR NOT EXISTS (
		SELECT 1 FROM {messages} AS e
		WHERE e.key = m.key AND e.state = 'pending' AND e.tried > 0 AND e.key <> '' AND e.seq < m.seq))
	AND (m.key = '' OR {stop} = 0 OR NOT EXISTS (
		SELECT 1 FROM {messages} AS e
		WHERE e.key = m.key AND e.state = 'dead' AND e.key <> '' AND e.seq < m.seq))
	AND (m.key = '' OR NOT EXISTS (
		SELECT 1 FROM unknown AS u CROSS JOIN {messages} AS e ON e.topic = u.topic
		WHERE e.state = 'pending' AND e.key = m.key AND e.seq < m.seq))

-- name: mine
m.key_hash % {shards} = {shard}
	AND m.key NOT IN (SELECT k.value FROM json_each({keys}) AS k)
	AND m.seq NOT IN (SELECT k.value FROM json_each({ids}) AS k)
	AND {free}

-- name: again
m.state = 'pending' AND m.tried > 0
	AND (m.key = '' OR NOT EXISTS (
		SELECT 1 FROM {messages} AS e
		WHERE e.key = m.key AND e.state = 'pending' AND e.tried = 0 AND e.seq < m.seq))

-- name: delivery
d.seq, d.message_id, d.topic, d.key, d.key_hash, d.payload, d.headers, d.attempts, d.attempts - d.tried,
	d.crashes, d.requeued_at IS NOT NULL, {now} - d.created_at, d.next_attempt_at - d.failing_since

-- name: due
WITH RECURSIVE {unknown},
{edge},
fresh AS MATERIALIZED (
	SELECT m.seq FROM {messages} AS m
	WHERE m.state = 'pending' AND {inside} AND m.tried = 0
		AND {mine}
	ORDER BY m.seq LIMIT {limit}
),
retried AS MATERIALIZED (
	SELECT m.seq FROM {messages} AS m
	WHERE {again} AND m.next_attempt_at <= {now}
		AND {mine}
	ORDER BY m.next_attempt_at LIMIT {limit}
),
found AS MATERIALIZED (SELECT seq FROM fresh UNION ALL SELECT seq FROM retried ORDER BY seq LIMIT {limit}),
due AS MATERIALIZED (
	SELECT r.seq FROM (SELECT o.seq, sum(length(m.payload)) OVER (ORDER BY o.seq) - length(m.payload) AS ahead
		FROM found AS o CROSS JOIN {messages} AS m ON m.seq = o.seq) AS r
	WHERE r.ahead < {bytes}
)
SELECT l.shards, l.epoch,
	(SELECT m.next_attempt_at - {now} FROM {messages} AS m
		WHERE {again} AND m.next_attempt_at > {now}
			AND {mine}
		ORDER BY m.next_attempt_at LIMIT 1),
	(SELECT e.seq FROM edge AS e), {delivery}
FROM {layout} AS l LEFT JOIN due AS o ON true LEFT JOIN {messages} AS d ON d.seq = o.seq
WHERE l.id = 1
ORDER BY o.seq

-- name: due_live
-- Messages that were appended after the last requeued message and have no requeued message before
-- them in their key.
WITH RECURSIVE {unknown},
last AS MATERIALIZED (
	SELECT max(m.seq) AS seq FROM {messages} AS m WHERE m.state = 'pending' AND m.requeued_at IS NOT NULL
),
live AS MATERIALIZED (
	SELECT m.seq FROM {messages} AS m
	WHERE m.state = 'pending' AND m.seq > (SELECT l.seq FROM last AS l) ORDER BY m.seq LIMIT {window}
)
SELECT {delivery}
FROM (SELECT o.*, sum(length(o.payload)) OVER (ORDER BY o.seq) - length(o.payload) AS ahead FROM (
	SELECT m.* FROM live AS o CROSS JOIN {messages} AS m ON m.seq = o.seq
	WHERE m.tried = 0
		AND (m.key = '' OR NOT EXISTS (
			SELECT 1 FROM {messages} AS e
			WHERE e.state = 'pending' AND e.tried = 0 AND e.key = m.key AND e.seq <= (SELECT l.seq FROM last AS l)))
		AND {mine}
	ORDER BY m.seq LIMIT {limit}
) AS o) AS d
WHERE d.ahead < {bytes}
ORDER BY d.seq

-- name: due_keyless
WITH RECURSIVE {unknown}
SELECT {delivery}
FROM (SELECT o.*, sum(length(o.payload)) OVER (ORDER BY o.seq) - length(o.payload) AS ahead FROM (
	SELECT m.* FROM {messages} AS m
	WHERE m.state = 'pending' AND m.tried = 0 AND m.key = ''
		AND {mine}
	ORDER BY m.seq LIMIT {limit}
) AS o) AS d
WHERE d.ahead < {bytes}
ORDER BY d.seq

-- name: page
-- The first message of each of the next keys. The query takes one step per key, no matter how many
-- messages it has.
keys(key, n) AS (
	SELECT (SELECT min(m.key) FROM {messages} AS m WHERE m.state = 'pending' AND m.tried = 0 AND m.key > {after}), 1
	UNION ALL
	SELECT (SELECT min(m.key) FROM {messages} AS m WHERE m.state = 'pending' AND m.tried = 0 AND m.key > k.key),
		k.n + 1
	FROM keys AS k WHERE k.key IS NOT NULL AND k.n < {page_size}
),
page AS MATERIALIZED (
	SELECT k.key, (SELECT min(m.seq) FROM {messages} AS m
		WHERE m.state = 'pending' AND m.tried = 0 AND m.key = k.key) AS seq
	FROM keys AS k WHERE k.key IS NOT NULL
)

-- name: due_by_key
WITH RECURSIVE {unknown},
{page},
run(seq, key, n) AS (
	SELECT m.seq, m.key, 1 FROM page AS o CROSS JOIN {messages} AS m ON m.seq = o.seq WHERE {mine}
	UNION ALL
	SELECT (SELECT min(m.seq) FROM {messages} AS m
		WHERE m.state = 'pending' AND m.tried = 0 AND m.key = r.key AND m.seq > r.seq), r.key, r.n + 1
	FROM run AS r WHERE r.seq IS NOT NULL AND r.n < {most_of_key}
),
found AS MATERIALIZED (
	SELECT m.seq, m.key FROM run AS r CROSS JOIN {messages} AS m ON m.seq = r.seq WHERE {mine}
	ORDER BY m.key, m.seq LIMIT {limit}
),
due AS MATERIALIZED (
	SELECT r.seq, r.key FROM (
		SELECT o.seq, o.key, sum(length(m.payload)) OVER (ORDER BY o.key, o.seq) - length(m.payload) AS ahead
		FROM found AS o CROSS JOIN {messages} AS m ON m.seq = o.seq) AS r
	WHERE r.ahead < {bytes}
)
SELECT l.n, l.key, {delivery}
FROM (SELECT count(*) AS n, coalesce(max(o.key), '') AS key FROM page AS o) AS l
	LEFT JOIN due AS o ON true LEFT JOIN {messages} AS d ON d.seq = o.seq
ORDER BY o.key, o.seq

-- name: padded_id
substr(hex(m.message_id) || '00000000000000000000000000000000', 1, 32)

-- name: note_begun
UPDATE {messages} AS m SET crashes = x.crashes
FROM (
	SELECT x.value ->> 'id' AS id, x.value ->> 'seq' AS seq, x.value ->> 'attempts' AS attempts,
		x.value ->> 'crashes' AS crashes
	FROM json_each({begun}) AS x
) AS x
WHERE m.seq = x.seq AND {padded_id} = x.id AND m.attempts = x.attempts AND m.state = 'pending'

-- name: mark
INSERT INTO {attempts} (message, attempt, at, took, node, outcome, error)
SELECT m.seq, m.attempts + 1, {now}, x.value ->> 'took', x.value ->> 'node', x.value ->> 'outcome',
	x.value ->> 'error'
FROM json_each({results}) AS x CROSS JOIN {messages} AS m ON m.seq = x.value ->> 'seq'
WHERE {padded_id} = x.value ->> 'id' AND m.attempts = x.value ->> 'attempts'
	AND m.state = 'pending'
ON CONFLICT (message, attempt) DO NOTHING;

UPDATE {messages} AS m SET
	attempts = m.attempts + 1,
	tried = m.tried + 1,
	crashes = 0,
	state = CASE x.outcome WHEN 'ok' THEN 'dispatched' WHEN 'transient' THEN 'pending' ELSE 'dead' END,
	next_attempt_at = CASE x.outcome WHEN 'transient' THEN {now} + x.retry_in ELSE m.next_attempt_at END,
	failing_since = CASE
		WHEN x.outcome = 'ok' THEN m.failing_since
		WHEN m.failing_since IS NULL OR m.failing_since > {now} - x.took THEN -- in the future: the clock was ahead
			{now} - x.took
		WHEN {now} - x.took > m.next_attempt_at + x.most_late THEN m.failing_since + {now} - x.took - m.next_attempt_at
		ELSE m.failing_since END,
	finished_at = CASE x.outcome WHEN 'transient' THEN NULL ELSE {now} END,
	last_error = CASE x.outcome WHEN 'ok' THEN m.last_error ELSE x.error END
FROM (
	SELECT x.value ->> 'id' AS id, x.value ->> 'seq' AS seq, x.value ->> 'attempts' AS attempts,
		x.value ->> 'outcome' AS outcome, x.value ->> 'retry_in' AS retry_in, x.value ->> 'error' AS error,
		x.value ->> 'took' AS took, x.value ->> 'most_late' AS most_late
	FROM json_each({results}) AS x
) AS x
WHERE m.seq = x.seq AND {padded_id} = x.id AND m.attempts = x.attempts AND m.state = 'pending';

DELETE FROM {attempts} WHERE (message, attempt) IN (
	SELECT m.seq, m.attempts - {last_attempts}
	FROM json_each({results}) AS x CROSS JOIN {messages} AS m ON m.seq = x.value ->> 'seq'
	WHERE m.attempts > {first_attempts} + {last_attempts});

SELECT m.message_id, 0 FROM json_each({results}) AS x CROSS JOIN {messages} AS m ON m.seq = x.value ->> 'seq'
	CROSS JOIN {attempts} AS a ON a.message = m.seq AND a.attempt = (x.value ->> 'attempts') + 1
WHERE {padded_id} = x.value ->> 'id' AND a.outcome = x.value ->> 'outcome'
	AND a.node = x.value ->> 'node';

-- name: old
SELECT o.seq FROM (
	SELECT * FROM (SELECT m.seq FROM {messages} AS m
		WHERE m.state = 'dispatched' AND m.finished_at < {now} - {dispatched} AND {dispatched} > 0
		ORDER BY m.finished_at LIMIT {limit})
	UNION ALL
	SELECT * FROM (SELECT m.seq FROM {messages} AS m
		WHERE m.state = 'dead' AND m.finished_at < {now} - {dead} AND {dead} > 0
		ORDER BY m.finished_at LIMIT {limit})
	LIMIT {limit}) AS o

-- name: sweep
-- Foreign keys may be disabled on this connection, so delete the attempts explicitly.
DELETE FROM {attempts} WHERE message IN ({old});

DELETE FROM {messages} WHERE seq IN ({old});

SELECT changes();

-- name: sweep_inbox
DELETE FROM {inbox} WHERE (consumer, message_id) IN (
	SELECT i.consumer, i.message_id FROM {inbox} AS i
	WHERE i.received_at < {now} - {inbox_kept} AND {inbox_kept} > 0
	ORDER BY i.received_at LIMIT {limit});

SELECT changes();

-- name: stats
WITH RECURSIVE {unknown},
{edge}
SELECT
	(SELECT count(*) FROM (SELECT 1 FROM {messages} AS m WHERE m.state = 'pending' LIMIT {most})),
	(SELECT count(*) FROM (SELECT 1 FROM {messages} AS m WHERE m.state = 'dead' AND m.finished_at IS NOT NULL
		LIMIT {most})),
	(SELECT {now} - min(o.next_attempt_at) FROM (
		SELECT * FROM (SELECT m.next_attempt_at FROM {messages} AS m
			WHERE m.state = 'pending' AND {inside} AND m.tried = 0
				AND {free}
			ORDER BY m.seq LIMIT {first})
		UNION ALL
		SELECT * FROM (SELECT m.next_attempt_at FROM {messages} AS m
			WHERE {again} AND m.next_attempt_at <= {now}
				AND {free}
			ORDER BY m.next_attempt_at LIMIT {first})) AS o),
	(SELECT {now} - min(o.since) FROM (
		SELECT * FROM (SELECT coalesce(m.requeued_at, m.created_at) AS since FROM {messages} AS m
			WHERE m.state = 'pending' ORDER BY m.seq LIMIT {window})
		UNION ALL
		SELECT * FROM (SELECT m.created_at FROM {messages} AS m
			WHERE m.state = 'pending' AND m.seq > (SELECT max(q.seq) FROM {messages} AS q
				WHERE q.state = 'pending' AND q.requeued_at IS NOT NULL)
			ORDER BY m.seq LIMIT 1)) AS o),
	(SELECT e.seq FROM edge AS e), u.topic,
	(SELECT count(*) FROM (SELECT 1 FROM {messages} AS m WHERE m.state = 'pending' AND m.topic = u.topic
		LIMIT {most}))
FROM (SELECT 1) LEFT JOIN (SELECT u.topic FROM unknown AS u ORDER BY u.topic LIMIT {max_unknown}) AS u ON true

-- name: oldest_by_key
WITH RECURSIVE {unknown},
{page}
SELECT l.n, l.key, (
	SELECT coalesce({now} - min(m.next_attempt_at), 0)
	FROM page AS o CROSS JOIN {messages} AS m ON m.seq = o.seq WHERE {free})
FROM (SELECT count(*) AS n, coalesce(max(o.key), '') AS key FROM page AS o) AS l

-- name: failing
SELECT r.topic, r.n, r.failing_since, {now} - r.failing_since, r.last_error
FROM (
	SELECT o.*, count(*) OVER (PARTITION BY o.topic) AS n,
		row_number() OVER (PARTITION BY o.topic ORDER BY o.failing_since, o.seq) AS place
	FROM (
		SELECT m.seq, m.topic, m.failing_since, m.last_error FROM {messages} AS m
		WHERE m.state = 'pending' AND m.failing_since IS NOT NULL ORDER BY m.failing_since LIMIT {most}) AS o
) AS r
WHERE r.place = 1
ORDER BY r.failing_since, r.topic LIMIT {most_topics}
