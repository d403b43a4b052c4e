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
