-- Finds what can be delivered, in order.
CREATE INDEX IF NOT EXISTS {pending_in} ON {messages_name} (seq) WHERE state = 'pending';

-- Finds the topics of pending messages, and what waits for a sink for its topic.
CREATE INDEX IF NOT EXISTS {topics_in} ON {messages_name} (topic, key, seq) WHERE state = 'pending';

-- Finds what holds back the later messages of a key. A message that was never tried is not in it.
CREATE INDEX IF NOT EXISTS {waiting_in} ON {messages_name} (key, seq)
	WHERE attempts > 0 AND state <> 'dispatched' AND key <> '';

-- Finds what of it is in back-off, without stepping over all that is dead.
CREATE INDEX IF NOT EXISTS {retried_in} ON {messages_name} (key, seq)
	WHERE CASE state WHEN 'pending' THEN attempts > 0 AND key <> '' END;

-- Finds when the next message is tried again.
CREATE INDEX IF NOT EXISTS {backoff_in} ON {messages_name} (next_attempt_at) WHERE attempts > 0 AND state = 'pending';

-- Finds what is old, and counts what is dead.
CREATE INDEX IF NOT EXISTS {finished_in} ON {messages_name} (state, finished_at) WHERE finished_at IS NOT NULL;

CREATE INDEX IF NOT EXISTS {received_in} ON {inbox_name} (received_at);

INSERT INTO {layout} (id, shards, epoch) VALUES (1, 1, 1) ON CONFLICT (id) DO NOTHING;
