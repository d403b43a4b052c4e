INSERT INTO {inbox} (consumer, message_id) VALUES ({consumer}, {id})
