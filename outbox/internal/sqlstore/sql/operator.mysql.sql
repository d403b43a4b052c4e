-- name: record
m.seq, m.message_id, m.topic, m.`key`, m.key_hash, m.state, m.attempts,
	TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', m.next_attempt_at),
	TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', m.created_at),
	TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', m.failing_since),
	TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', m.finished_at), CAST(m.last_error AS BINARY)

-- name: messages
{bounded} SELECT {hint} {record} FROM {messages} AS m WHERE 1 = 1{where} ORDER BY m.seq DESC LIMIT {limit}

-- name: message
{bounded} SELECT {hint} {record}, m.payload, CAST(m.headers AS BINARY),
	a.attempt, TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', a.at), a.took, CAST(a.node AS BINARY),
	a.outcome, CAST(a.error AS BINARY)
FROM {messages} AS m LEFT JOIN {attempts} AS a ON a.message = m.seq
WHERE m.message_id = {id}
ORDER BY a.attempt
LIMIT 18446744073709551615

-- name: requeue_page
{bounded} SELECT {hint} COUNT(*), COALESCE(MAX(p.seq), 0) FROM (
	SELECT m.seq FROM {messages} AS m WHERE m.state = 'dead'{where} ORDER BY m.seq LIMIT {limit}) AS p

-- name: requeue
{bounded} UPDATE {hint} {messages} AS m SET m.state = 'pending', m.tried = 0, m.crashes = 0,
	m.next_attempt_at = UTC_TIMESTAMP(6), m.requeued_at = UTC_TIMESTAMP(6), m.failing_since = NULL,
	m.finished_at = NULL, m.note = {note}
WHERE m.state = 'dead' AND ({older} = 0 OR m.created_at >= UTC_TIMESTAMP(6) - INTERVAL {older} MICROSECOND){where};

-- The remaining dead letters are too old.
SELECT ROW_COUNT(), (SELECT COUNT(*) FROM {messages} AS m WHERE m.state = 'dead'{where});

-- name: delete
{bounded} DELETE {hint} m FROM {messages} AS m WHERE m.state = 'dead'{where};

SELECT ROW_COUNT();

-- name: topics_kept
-- Topics that have a message. One step for each topic, however many messages it has.
{bounded} SELECT {hint} DISTINCT m.topic FROM {messages} AS m FORCE INDEX (ended)
	ORDER BY m.topic LIMIT {most_topics}

-- name: topic_history
-- How the messages of a topic ended that did so last, and in the last row how many are pending.
{bounded} SELECT {hint} * FROM (
	SELECT m.state, TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', m.finished_at) AS ended,
		TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', m.failing_since) AS since,
		CAST(m.last_error AS BINARY) AS error, 1 AS n FROM {messages} AS m FORCE INDEX (ended)
	WHERE m.topic = {topic} AND m.state = 'dispatched' AND m.finished_at IS NOT NULL
	ORDER BY m.finished_at DESC LIMIT {outcomes}) AS u
UNION ALL
SELECT * FROM (
	SELECT m.state, TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', m.finished_at),
		TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', m.failing_since),
		CAST(m.last_error AS BINARY), 1 FROM {messages} AS m FORCE INDEX (ended)
	WHERE m.topic = {topic} AND m.state = 'dead' AND m.finished_at IS NOT NULL
	ORDER BY m.finished_at DESC LIMIT {outcomes}) AS r
UNION ALL
SELECT 'pending', NULL, NULL, '', (SELECT count(*) FROM (SELECT 1 AS one FROM {messages} AS m FORCE INDEX (ended)
	WHERE m.topic = {topic} AND m.state = 'pending' LIMIT {most}) AS o)
LIMIT 18446744073709551615 -- all rows, even if sql_select_limit is set

-- name: flow
-- {most} newest messages, and as many of each state that ended last, are counted by {width} µs. The
-- last row has only the time.
{bounded} SELECT {hint} 'in', o.topic,
	TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', o.created_at) DIV {width} AS n, COUNT(*) AS c,
	TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS at
FROM (SELECT m.topic, m.created_at FROM {messages} AS m ORDER BY m.seq DESC LIMIT {most}) AS o
WHERE o.created_at > UTC_TIMESTAMP(6) - INTERVAL {span} MICROSECOND GROUP BY 2, 3
UNION ALL
SELECT 'dispatched', o.topic,
	TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', o.finished_at) DIV {width} AS n, COUNT(*) AS c,
	TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS at
FROM (SELECT m.topic, m.finished_at FROM {messages} AS m
	WHERE m.state = 'dispatched' AND m.finished_at IS NOT NULL ORDER BY m.finished_at DESC LIMIT {most}) AS o
WHERE o.finished_at > UTC_TIMESTAMP(6) - INTERVAL {span} MICROSECOND GROUP BY 2, 3
UNION ALL
SELECT 'dead', o.topic, TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', o.finished_at) DIV {width}
	AS n, COUNT(*) AS c, TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS at
FROM (SELECT m.topic, m.finished_at FROM {messages} AS m WHERE m.state = 'dead' AND m.finished_at IS NOT NULL
	ORDER BY m.finished_at DESC LIMIT {most}) AS o
WHERE o.finished_at > UTC_TIMESTAMP(6) - INTERVAL {span} MICROSECOND GROUP BY 2, 3
UNION ALL
SELECT 'now', '', 0, 0, TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6))
LIMIT 18446744073709551615 -- all rows, even if sql_select_limit is set
