SELECT m.topic, m.`key`, HEX(m.payload) FROM {messages} AS m WHERE m.message_id = {id}
