-- name: append
-- Do not use INSERT IGNORE: it would hide other errors, too.
INSERT INTO {messages} (message_id, topic, `key`, key_hash, payload, headers)
VALUES ({id}, {topic}, {key}, {hash}, {payload}, {headers})

-- name: count_appended
SELECT count(*) FROM {messages} AS m WHERE m.message_id IN ({ids})

-- name: append_all
INSERT INTO {messages} (message_id, topic, `key`, key_hash, payload, headers)
VALUES {rows}

-- name: appended
SELECT m.topic, m.`key`, HEX(m.payload) FROM {messages} AS m WHERE m.message_id = {id}

-- name: appended_now
-- The message may have been committed after the transaction began. The other reads of the
-- transaction do not see it.
SELECT m.topic, m.`key`, HEX(m.payload) FROM {messages} AS m WHERE m.message_id = {id} LOCK IN SHARE MODE

-- name: next_appended
SELECT m.seq, m.message_id, m.topic, m.`key`, HEX(m.payload), m.headers FROM {messages} AS m
WHERE m.state = 'pending' AND m.seq > {after} ORDER BY m.seq LIMIT 1

-- name: once
INSERT INTO {inbox} (consumer, message_id) VALUES ({consumer}, {id})
