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

-- What is left is too old.
SELECT changes(), (SELECT count(*) FROM {messages} AS m WHERE m.state = 'dead'{where});

-- name: delete
-- Foreign keys need not be enabled on this connection.
DELETE FROM {attempts} WHERE message IN (SELECT m.seq FROM {messages} AS m WHERE m.state = 'dead'{where});

DELETE FROM {messages} AS m WHERE m.state = 'dead'{where};

SELECT changes();
