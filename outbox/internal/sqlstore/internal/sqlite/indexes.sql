-- Finds what can be delivered, in order.
CREATE INDEX IF NOT EXISTS {pending_in} ON {messages_name} (seq) WHERE state = 'pending';

-- Finds the keys of what was not tried yet, and the first messages of each.
CREATE INDEX IF NOT EXISTS {fresh_in} ON {messages_name} (key, seq) WHERE state = 'pending' AND tried = 0;

-- Finds the topics of pending messages, and what waits for a sink for its topic.
CREATE INDEX IF NOT EXISTS {topics_in} ON {messages_name} (topic, key, seq) WHERE state = 'pending';

-- Find what holds back the later messages of a key.
CREATE INDEX IF NOT EXISTS {retried_in} ON {messages_name} (key, seq)
	WHERE state = 'pending' AND tried > 0 AND key <> '';
CREATE INDEX IF NOT EXISTS {dead_keys_in} ON {messages_name} (key, seq) WHERE state = 'dead' AND key <> '';

-- Finds what is tried again, and when.
CREATE INDEX IF NOT EXISTS {backoff_in} ON {messages_name} (next_attempt_at) WHERE state = 'pending' AND tried > 0;

-- Finds what has failed for longest.
CREATE INDEX IF NOT EXISTS {failing_in} ON {messages_name} (failing_since)
	WHERE state = 'pending' AND failing_since IS NOT NULL;

-- Finds what was requeued last.
CREATE INDEX IF NOT EXISTS {requeued_in} ON {messages_name} (seq)
	WHERE state = 'pending' AND requeued_at IS NOT NULL;

-- Finds what is old, and counts what is dead.
CREATE INDEX IF NOT EXISTS {finished_in} ON {messages_name} (state, finished_at) WHERE finished_at IS NOT NULL;

CREATE INDEX IF NOT EXISTS {received_in} ON {inbox_name} (received_at);

INSERT INTO {layout} (id, shards, epoch) VALUES (1, 1, 1) ON CONFLICT (id) DO NOTHING;
