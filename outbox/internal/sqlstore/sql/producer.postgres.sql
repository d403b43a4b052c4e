-- name: append
-- The statement runs in the application's transaction, so all names are qualified. It fails if the
-- message was committed after the transaction began and the isolation level hides it.
INSERT INTO {messages} (message_id, topic, key, key_hash, payload, headers)
VALUES ({id}, {topic}, {key}, {hash}, {payload}, {headers})
ON CONFLICT (message_id) DO NOTHING

-- name: count_appended
SELECT count(*) FROM {messages} AS m WHERE m.message_id IN ({ids})

-- name: append_all
INSERT INTO {messages} (message_id, topic, key, key_hash, payload, headers)
VALUES {rows}
ON CONFLICT (message_id) DO NOTHING

-- name: appended
SELECT m.topic, m.key, pg_catalog.encode(m.payload, 'hex') FROM {messages} AS m WHERE m.message_id = {id}

-- name: next_appended
SELECT m.seq, pg_catalog.uuid_send(m.message_id), m.topic, m.key, pg_catalog.encode(m.payload, 'hex'),
	m.headers::text FROM {messages} AS m
WHERE m.state = 'pending' AND m.seq > {after} ORDER BY m.seq LIMIT 1

-- name: once
INSERT INTO {inbox} (consumer, message_id) VALUES ({consumer}, {id}) ON CONFLICT DO NOTHING

-- name: notify
SELECT pg_catalog.pg_notify({channel}, '')
