-- Never run against a server.

-- name: append
-- A transaction that appends the same message at the same time waits for this one. So does a
-- transaction that appends a message whose ID falls into the same gap between IDs: HOLDLOCK locks
-- the gap of a missing ID. Two transactions that append into two gaps each can deadlock (1205). A
-- plain INSERT would lock only the row, but with XACT_ABORT ON its error ends the transaction.
INSERT INTO {messages} (message_id, topic, [key], key_hash, payload, headers)
SELECT {id}, {topic}, {key}, {hash}, {payload}, {headers}
WHERE NOT EXISTS (SELECT 1 FROM {messages} AS m WITH (UPDLOCK, HOLDLOCK) WHERE m.message_id = {id})

-- name: count_appended
SELECT COUNT_BIG(*) FROM {messages} AS m WITH (UPDLOCK, HOLDLOCK) WHERE m.message_id IN ({ids})

-- name: append_all
-- ORDER BY determines the order in which the server numbers the rows.
INSERT INTO {messages} (message_id, topic, [key], key_hash, payload, headers)
SELECT v.message_id, v.topic, v.[key], v.key_hash, v.payload, v.headers
FROM (VALUES {rows}) AS v (message_id, topic, [key], key_hash, payload, headers, n)
ORDER BY v.n

-- name: appended
SELECT m.topic, m.[key], CONVERT(varchar(max), m.payload, 2) FROM {messages} AS m WHERE m.message_id = {id}

-- name: next_appended
SELECT TOP (1) m.seq, m.message_id, m.topic, m.[key], CONVERT(varchar(max), m.payload, 2), m.headers
FROM {messages} AS m
WHERE m.state = 'pending' AND m.seq > {after} ORDER BY m.seq

-- name: once
-- Like append, this statement locks the gap in which the row would be.
INSERT INTO {inbox} (consumer, message_id)
SELECT {consumer}, {id}
WHERE NOT EXISTS (SELECT 1 FROM {inbox} AS i WITH (UPDLOCK, HOLDLOCK)
	WHERE i.consumer = {consumer} AND i.message_id = {id})
