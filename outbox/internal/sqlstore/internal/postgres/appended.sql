SELECT m.topic, m.key, pg_catalog.encode(m.payload, 'hex') FROM {messages} AS m WHERE m.message_id = {id}
