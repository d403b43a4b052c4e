-- Who appends the same message at the same time waits for this transaction.
INSERT INTO {messages} (message_id, topic, [key], key_hash, payload, headers)
SELECT {id}, {topic}, {key}, {hash}, {payload}, {headers}
WHERE NOT EXISTS (SELECT 1 FROM {messages} AS m WITH (UPDLOCK, HOLDLOCK) WHERE m.message_id = {id})
