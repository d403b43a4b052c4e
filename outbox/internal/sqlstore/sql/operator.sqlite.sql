-- name: record
m.seq, m.message_id, m.topic, m.key, m.key_hash, m.state, m.attempts, m.next_attempt_at, m.created_at, m.failing_since,
	m.finished_at, m.last_error

-- name: messages
SELECT {record} FROM {messages} AS m WHERE true{where} ORDER BY m.seq DESC LIMIT {limit}

-- name: message
SELECT {record}, m.payload, m.headers, a.attempt, a.at, a.took, a.node, a.outcome, a.error
FROM {messages} AS m LEFT JOIN {attempts} AS a ON a.message = m.seq
WHERE m.message_id = {id}
ORDER BY a.attempt

-- name: requeue_page
SELECT count(*), coalesce(max(p.seq), 0) FROM (
	SELECT m.seq FROM {messages} AS m WHERE m.state = 'dead'{where} ORDER BY m.seq LIMIT {limit}) AS p

-- name: requeue
UPDATE {messages} AS m SET state = 'pending', tried = 0, crashes = 0, next_attempt_at = {now},
	requeued_at = {now}, failing_since = NULL, finished_at = NULL, note = {note}
WHERE m.state = 'dead' AND ({older} = 0 OR m.created_at >= {now} - {older}){where};

-- The remaining dead letters are too old.
SELECT changes(), (SELECT count(*) FROM {messages} AS m WHERE m.state = 'dead'{where});

-- name: delete
-- Foreign keys may be disabled on this connection, so delete the attempts explicitly.
DELETE FROM {attempts} WHERE message IN (SELECT m.seq FROM {messages} AS m WHERE m.state = 'dead'{where});

DELETE FROM {messages} AS m WHERE m.state = 'dead'{where};

SELECT changes();

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
	SELECT m.state, m.finished_at AS ended, m.failing_since AS since, m.last_error AS error, 1 AS n
		FROM {messages} AS m
	WHERE m.topic = {topic} AND m.state = 'dispatched' AND m.finished_at IS NOT NULL
	ORDER BY m.finished_at DESC LIMIT {outcomes}) AS u
UNION ALL
SELECT * FROM (
	SELECT m.state, m.finished_at, m.failing_since, m.last_error, 1 FROM {messages} AS m
	WHERE m.topic = {topic} AND m.state = 'dead' AND m.finished_at IS NOT NULL
	ORDER BY m.finished_at DESC LIMIT {outcomes}) AS r
UNION ALL
SELECT 'pending', NULL, NULL, '', (SELECT count(*) FROM (SELECT 1 AS one FROM {messages} AS m
	WHERE m.topic = {topic} AND m.state = 'pending' LIMIT {most}) AS o)

-- name: flow
-- {most} newest messages, and as many of each state that ended last, are counted by {width} µs. The
-- last row has only the time.
SELECT 'in', o.topic, o.created_at / {width} AS n, COUNT(*) AS c, {now} AS at
FROM (SELECT m.topic, m.created_at FROM {messages} AS m ORDER BY m.seq DESC LIMIT {most}) AS o
WHERE o.created_at > {now} - {span} GROUP BY 2, 3
UNION ALL
SELECT 'dispatched', o.topic, o.finished_at / {width} AS n, COUNT(*) AS c, {now} AS at
FROM (SELECT m.topic, m.finished_at FROM {messages} AS m
	WHERE m.state = 'dispatched' AND m.finished_at IS NOT NULL ORDER BY m.finished_at DESC LIMIT {most}) AS o
WHERE o.finished_at > {now} - {span} GROUP BY 2, 3
UNION ALL
SELECT 'dead', o.topic, o.finished_at / {width} AS n, COUNT(*) AS c, {now} AS at
FROM (SELECT m.topic, m.finished_at FROM {messages} AS m WHERE m.state = 'dead' AND m.finished_at IS NOT NULL
	ORDER BY m.finished_at DESC LIMIT {most}) AS o
WHERE o.finished_at > {now} - {span} GROUP BY 2, 3
UNION ALL
SELECT 'now', '', 0, 0, {now}
