SELECT m.topic, m.[key], CONVERT(varchar(max), m.payload, 2) FROM {messages} AS m WHERE m.message_id = {id}
