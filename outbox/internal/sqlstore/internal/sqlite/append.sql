INSERT INTO {messages} (message_id, topic, key, key_hash, payload, headers)
VALUES ({id}, {topic}, {key}, {hash}, coalesce({payload}, x''), {headers})
ON CONFLICT (message_id) DO NOTHING
