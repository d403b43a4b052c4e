SELECT m.topic, m.[key], m.payload FROM {messages} AS m WHERE m.message_id = {id}
