-- Never run against a server.

-- name: record
m.seq, m.message_id, m.topic, m.[key], m.key_hash, m.state, m.attempts,
	DATEDIFF_BIG(MICROSECOND, '1970-01-01', m.next_attempt_at), DATEDIFF_BIG(MICROSECOND, '1970-01-01', m.created_at),
	DATEDIFF_BIG(MICROSECOND, '1970-01-01', m.failing_since), DATEDIFF_BIG(MICROSECOND, '1970-01-01', m.finished_at),
	 m.last_error

-- name: messages
{begin}
SELECT TOP ({limit}) {record} FROM {messages} AS m WHERE 1 = 1{where} ORDER BY m.seq DESC;

-- name: message
{begin}
SELECT {record}, m.payload, m.headers,
	a.attempt, DATEDIFF_BIG(MICROSECOND, '1970-01-01', a.at), a.took, a.node, a.outcome, a.error
FROM {messages} AS m LEFT JOIN {attempts} AS a ON a.message = m.seq
WHERE m.message_id = {id}
ORDER BY a.attempt;

-- name: requeue_page
{begin}
SELECT COUNT_BIG(*), COALESCE(MAX(p.seq), 0) FROM (
	SELECT TOP ({limit}) m.seq FROM {messages} AS m WHERE m.state = 'dead'{where} ORDER BY m.seq) AS p;

-- name: requeue
{begin}
DECLARE @n int;
BEGIN TRANSACTION;
UPDATE m SET state = 'pending', tried = 0, crashes = 0, next_attempt_at = @now, requeued_at = @now,
	failing_since = NULL, finished_at = NULL, note = {note}
FROM {messages} AS m
WHERE m.state = 'dead' AND ({older} = 0 OR m.created_at
	>= DATEADD(second, -({older} / 1000000), DATEADD(microsecond, -({older} % 1000000), @now))){where};
SET @n = @@ROWCOUNT;
-- The remaining dead letters are too old.
SELECT @n, (SELECT COUNT(*) FROM {messages} AS m WHERE m.state = 'dead'{where});
COMMIT TRANSACTION;

-- name: delete
{begin}
DELETE m FROM {messages} AS m WHERE m.state = 'dead'{where};
SELECT @@ROWCOUNT;

-- name: topics_kept
{begin}
SELECT DISTINCT TOP ({most_topics}) m.topic FROM {messages} AS m ORDER BY m.topic;

-- name: topic_history
-- How the messages of a topic ended that did so last, and in the last row how many are pending.
{begin}
SELECT * FROM (
	SELECT TOP ({outcomes}) m.state, DATEDIFF_BIG(MICROSECOND, '1970-01-01', m.finished_at) AS ended,
		DATEDIFF_BIG(MICROSECOND, '1970-01-01', m.failing_since) AS since, m.last_error AS error, 1 AS n
	FROM {messages} AS m WHERE m.topic = {topic} AND m.state = 'dispatched' AND m.finished_at IS NOT NULL
	ORDER BY m.finished_at DESC) AS u
UNION ALL
SELECT * FROM (
	SELECT TOP ({outcomes}) m.state, DATEDIFF_BIG(MICROSECOND, '1970-01-01', m.finished_at) AS ended,
		DATEDIFF_BIG(MICROSECOND, '1970-01-01', m.failing_since) AS since, m.last_error AS error, 1 AS n
	FROM {messages} AS m WHERE m.topic = {topic} AND m.state = 'dead' AND m.finished_at IS NOT NULL
	ORDER BY m.finished_at DESC) AS r
UNION ALL
SELECT 'pending', NULL, NULL, N'', (SELECT COUNT_BIG(*) FROM (SELECT TOP ({most}) 1 AS one FROM {messages} AS m
	WHERE m.topic = {topic} AND m.state = 'pending') AS o);

-- name: flow
-- {most} newest messages, and as many of each state that ended last, are counted by {width} µs. The
-- last row has only the time.
{begin}
SELECT 'in', o.topic, DATEDIFF_BIG(MICROSECOND, '1970-01-01', o.created_at) / {width} AS n, COUNT(*) AS c,
	DATEDIFF_BIG(MICROSECOND, '1970-01-01', SYSUTCDATETIME()) AS at
FROM (SELECT TOP ({most}) m.topic, m.created_at FROM {messages} AS m ORDER BY m.seq DESC) AS o
WHERE o.created_at > DATEADD(second, -{span} / 1000000, SYSUTCDATETIME()) GROUP BY o.topic,
	DATEDIFF_BIG(MICROSECOND, '1970-01-01', o.created_at) / {width}
UNION ALL
SELECT 'dispatched', o.topic, DATEDIFF_BIG(MICROSECOND, '1970-01-01', o.finished_at) / {width}
	AS n, COUNT(*) AS c, DATEDIFF_BIG(MICROSECOND, '1970-01-01', SYSUTCDATETIME()) AS at
FROM (SELECT TOP ({most}) m.topic, m.finished_at FROM {messages} AS m
	WHERE m.state = 'dispatched' AND m.finished_at IS NOT NULL ORDER BY m.finished_at DESC) AS o
WHERE o.finished_at > DATEADD(second, -{span} / 1000000, SYSUTCDATETIME()) GROUP BY o.topic,
	DATEDIFF_BIG(MICROSECOND, '1970-01-01', o.finished_at) / {width}
UNION ALL
SELECT 'dead', o.topic, DATEDIFF_BIG(MICROSECOND, '1970-01-01', o.finished_at) / {width} AS n, COUNT(*) AS c,
	DATEDIFF_BIG(MICROSECOND, '1970-01-01', SYSUTCDATETIME()) AS at
FROM (SELECT TOP ({most}) m.topic, m.finished_at FROM {messages} AS m
	WHERE m.state = 'dead' AND m.finished_at IS NOT NULL ORDER BY m.finished_at DESC) AS o
WHERE o.finished_at > DATEADD(second, -{span} / 1000000, SYSUTCDATETIME()) GROUP BY o.topic,
	DATEDIFF_BIG(MICROSECOND, '1970-01-01', o.finished_at) / {width}
UNION ALL
SELECT 'now', 0x, 0, 0, DATEDIFF_BIG(MICROSECOND, '1970-01-01', SYSUTCDATETIME());
