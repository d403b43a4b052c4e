-- name: record
m.seq, pg_catalog.uuid_send(m.message_id), m.topic, m.key, m.key_hash, m.state, m.attempts,
	(extract(epoch FROM m.next_attempt_at) * 1000000)::bigint, (extract(epoch FROM m.created_at) * 1000000)::bigint,
	(extract(epoch FROM m.failing_since) * 1000000)::bigint,
	(extract(epoch FROM m.finished_at) * 1000000)::bigint, m.last_error

-- name: messages
SELECT {record} FROM {messages} AS m WHERE true{where} ORDER BY m.seq DESC LIMIT {limit}

-- name: message
SELECT {record}, m.payload, m.headers,
	a.attempt, (extract(epoch FROM a.at) * 1000000)::bigint, a.took, a.node, a.outcome, a.error
FROM {messages} AS m LEFT JOIN {attempts} AS a ON a.message = m.seq
WHERE m.message_id = {id}
ORDER BY a.attempt

-- name: requeue_page
SELECT count(*), coalesce(max(p.seq), 0) FROM (
	SELECT m.seq FROM {messages} AS m WHERE m.state = 'dead'{where} ORDER BY m.seq LIMIT {limit}) AS p

-- name: requeue
WITH now AS MATERIALIZED (SELECT pg_catalog.clock_timestamp() AS at),
found AS MATERIALIZED (
	SELECT m.seq, {older} = 0 OR m.created_at >= now.at - {older} * interval '1 microsecond' AS young
	FROM {messages} AS m, now
	WHERE m.state = 'dead'{where}
	ORDER BY m.seq FOR NO KEY UPDATE OF m
),
requeued AS (
	UPDATE {messages} AS m SET state = 'pending', tried = 0, crashes = 0, next_attempt_at = now.at,
		requeued_at = now.at, failing_since = NULL,
		finished_at = NULL, note = {note}
	FROM found, now
	WHERE m.seq = found.seq AND found.young
	RETURNING 1
)
SELECT (SELECT count(*) FROM requeued), (SELECT count(*) FROM found WHERE NOT young)

-- name: delete
WITH deleted AS (DELETE FROM {messages} AS m WHERE m.state = 'dead'{where} RETURNING 1)
SELECT count(*) FROM deleted

-- name: topics_kept
-- Topics that have a message. One step for each topic, however many messages it has.
WITH RECURSIVE ended(topic) AS (
	SELECT min(m.topic) FROM {messages} AS m WHERE m.finished_at IS NOT NULL
	UNION ALL
	SELECT (SELECT min(m.topic) FROM {messages} AS m WHERE m.finished_at IS NOT NULL AND m.topic > e.topic)
	FROM ended AS e WHERE e.topic IS NOT NULL
),
pending(topic) AS (
	SELECT min(m.topic) FROM {messages} AS m WHERE m.state = 'pending'
	UNION ALL
	SELECT (SELECT min(m.topic) FROM {messages} AS m WHERE m.state = 'pending' AND m.topic > l.topic)
	FROM pending AS l WHERE l.topic IS NOT NULL
)
SELECT t.topic FROM (SELECT topic FROM ended UNION SELECT topic FROM pending) AS t
WHERE t.topic IS NOT NULL ORDER BY t.topic LIMIT {most_topics}

-- name: topic_history
-- How the messages of a topic ended that did so last, and in the last row how many are pending.
SELECT * FROM (
	SELECT m.state, (extract(epoch FROM m.finished_at) * 1000000)::bigint AS ended,
		(extract(epoch FROM m.failing_since) * 1000000)::bigint AS since, m.last_error AS error, 1 AS n
		FROM {messages} AS m
	WHERE m.topic = {topic} AND m.state = 'dispatched' AND m.finished_at IS NOT NULL
	ORDER BY m.finished_at DESC LIMIT {outcomes}) AS u
UNION ALL
SELECT * FROM (
	SELECT m.state, (extract(epoch FROM m.finished_at) * 1000000)::bigint,
		(extract(epoch FROM m.failing_since) * 1000000)::bigint, m.last_error, 1 FROM {messages} AS m
	WHERE m.topic = {topic} AND m.state = 'dead' AND m.finished_at IS NOT NULL
	ORDER BY m.finished_at DESC LIMIT {outcomes}) AS r
UNION ALL
SELECT 'pending', NULL, NULL, '', (SELECT count(*) FROM (SELECT 1 AS one FROM {messages} AS m
	WHERE m.topic = {topic} AND m.state = 'pending' LIMIT {most}) AS o)

-- name: flow
-- {most} newest messages, and as many of each state that ended last, are counted by {width} µs. The
-- last row has only the time.
SELECT 'in', o.topic, floor(extract(epoch FROM o.created_at) * 1000000 / {width})::bigint AS n, COUNT(*) AS c,
	(extract(epoch FROM pg_catalog.statement_timestamp()) * 1000000)::bigint AS at
FROM (SELECT m.topic, m.created_at FROM {messages} AS m ORDER BY m.seq DESC LIMIT {most}) AS o
WHERE o.created_at > pg_catalog.statement_timestamp() - {span} * interval '1 microsecond' GROUP BY 2, 3
UNION ALL
SELECT 'dispatched', o.topic, floor(extract(epoch FROM o.finished_at) * 1000000 / {width})::bigint
	AS n, COUNT(*) AS c, (extract(epoch FROM pg_catalog.statement_timestamp()) * 1000000)::bigint AS at
FROM (SELECT m.topic, m.finished_at FROM {messages} AS m
	WHERE m.state = 'dispatched' AND m.finished_at IS NOT NULL ORDER BY m.finished_at DESC LIMIT {most}) AS o
WHERE o.finished_at > pg_catalog.statement_timestamp() - {span} * interval '1 microsecond' GROUP BY 2, 3
UNION ALL
SELECT 'dead', o.topic, floor(extract(epoch FROM o.finished_at) * 1000000 / {width})::bigint
	AS n, COUNT(*) AS c, (extract(epoch FROM pg_catalog.statement_timestamp()) * 1000000)::bigint AS at
FROM (SELECT m.topic, m.finished_at FROM {messages} AS m WHERE m.state = 'dead' AND m.finished_at IS NOT NULL
	ORDER BY m.finished_at DESC LIMIT {most}) AS o
WHERE o.finished_at > pg_catalog.statement_timestamp() - {span} * interval '1 microsecond' GROUP BY 2, 3
UNION ALL
SELECT 'now', '', 0, 0, (extract(epoch FROM pg_catalog.statement_timestamp()) * 1000000)::bigint
