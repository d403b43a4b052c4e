-- Not INSERT IGNORE, which would hide other errors, too.
INSERT INTO {messages} (message_id, topic, `key`, key_hash, payload, headers)
VALUES ({id}, {topic}, {key}, {hash}, {payload}, {headers})
