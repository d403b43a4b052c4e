INSERT INTO {inbox} (consumer, message_id) VALUES ({consumer}, {id}) ON CONFLICT (consumer, message_id) DO NOTHING
