-- Finds what can be delivered, in order.
CREATE INDEX IF NOT EXISTS {pending} ON {messages} (seq) WHERE state = 'pending';

-- Finds the topics of pending messages, and what waits for a sink for its topic.
CREATE INDEX IF NOT EXISTS {topics} ON {messages} (topic, key, seq) WHERE state = 'pending';

-- Finds what holds back the later messages of a key. A message that was never tried is not in it.
CREATE INDEX IF NOT EXISTS {waiting} ON {messages} (key, seq)
	WHERE attempts > 0 AND state <> 'dispatched' AND key <> '';

-- Finds what of it is in back-off, without stepping over all that is dead. The condition is not
-- written as in the other indexes, so that none of those is ever taken for this.
CREATE INDEX IF NOT EXISTS {retried} ON {messages} (key, seq)
	WHERE CASE state WHEN 'pending' THEN attempts > 0 AND key <> '' END;

-- Finds when the next message is tried again.
CREATE INDEX IF NOT EXISTS {backoff} ON {messages} (next_attempt_at) WHERE attempts > 0 AND state = 'pending';

-- Finds what is old, and counts what is dead.
CREATE INDEX IF NOT EXISTS {finished} ON {messages} (state, finished_at) WHERE finished_at IS NOT NULL;

CREATE INDEX IF NOT EXISTS {received} ON {inbox} (received_at);

INSERT INTO {layout} (id, shards, epoch) VALUES (1, 1, 1) ON CONFLICT DO NOTHING;
