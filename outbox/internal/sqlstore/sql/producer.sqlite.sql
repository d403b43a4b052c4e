-- name: append
INSERT INTO {messages} (message_id, topic, key, key_hash, payload, headers)
VALUES ({id}, {topic}, {key}, {hash}, coalesce({payload}, x''), {headers})
ON CONFLICT (message_id) DO NOTHING

-- name: count_appended
SELECT count(*) FROM {messages} AS m WHERE m.message_id IN ({ids})

-- name: append_all
INSERT INTO {messages} (message_id, topic, key, key_hash, payload, headers)
VALUES {rows}
ON CONFLICT (message_id) DO NOTHING

-- name: appended
SELECT m.topic, m.key, HEX(m.payload) FROM {messages} AS m WHERE m.message_id = {id}

-- name: next_appended
SELECT m.seq, m.message_id, m.topic, m.key, HEX(m.payload), m.headers FROM {messages} AS m
WHERE m.state = 'pending' AND m.seq > {after} ORDER BY m.seq LIMIT 1

-- name: once
INSERT INTO {inbox} (consumer, message_id) VALUES ({consumer}, {id}) ON CONFLICT (consumer, message_id) DO NOTHING
