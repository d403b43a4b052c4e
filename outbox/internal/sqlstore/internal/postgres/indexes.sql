-- Finds what can be delivered, in order.
CREATE INDEX IF NOT EXISTS {pending} ON {messages} (seq) WHERE state = 'pending';

-- Finds the keys of what was not tried yet, and the first messages of each.
CREATE INDEX IF NOT EXISTS {fresh} ON {messages} (key, seq) WHERE state = 'pending' AND tried = 0;

-- Finds the topics of pending messages, and what waits for a sink for its topic.
CREATE INDEX IF NOT EXISTS {topics} ON {messages} (topic, key, seq) WHERE state = 'pending';

-- Find what holds back the later messages of a key.
CREATE INDEX IF NOT EXISTS {retried} ON {messages} (key, seq) WHERE state = 'pending' AND tried > 0 AND key <> '';
CREATE INDEX IF NOT EXISTS {dead_keys} ON {messages} (key, seq) WHERE state = 'dead' AND key <> '';

-- Finds what is tried again, and when.
CREATE INDEX IF NOT EXISTS {backoff} ON {messages} (next_attempt_at) WHERE state = 'pending' AND tried > 0;

-- Finds what has failed for longest.
CREATE INDEX IF NOT EXISTS {failing} ON {messages} (failing_since)
	WHERE state = 'pending' AND failing_since IS NOT NULL;

-- Finds what was requeued last.
CREATE INDEX IF NOT EXISTS {requeued} ON {messages} (seq) WHERE state = 'pending' AND requeued_at IS NOT NULL;

-- Finds what is old, and counts what is dead.
CREATE INDEX IF NOT EXISTS {finished} ON {messages} (state, finished_at) WHERE finished_at IS NOT NULL;

CREATE INDEX IF NOT EXISTS {received} ON {inbox} (received_at);

INSERT INTO {layout} (id, shards, epoch) VALUES (1, 1, 1) ON CONFLICT DO NOTHING;
