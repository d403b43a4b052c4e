-- name: schema
-- The messages. Times are microseconds since 1970.
CREATE TABLE IF NOT EXISTS {messages} (
	seq             INTEGER PRIMARY KEY AUTOINCREMENT, -- order within a key
	message_id      BLOB NOT NULL UNIQUE CHECK (length(message_id) = 16),
	topic           TEXT NOT NULL,
	key             TEXT NOT NULL,                     -- '': unordered
	key_hash        INTEGER NOT NULL                   -- modulo the number of shards, it gives the shard
		CHECK (key_hash BETWEEN 0 AND 4294967295),
	payload         BLOB NOT NULL,
	headers         TEXT NOT NULL                      -- a JSON object whose values are strings
		CHECK (json_valid(headers) AND json_type(headers) = 'object'),
	state           TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'dispatched', 'dead')),
	attempts        INTEGER NOT NULL DEFAULT 0,        -- total so far; only grows
	tried           INTEGER NOT NULL DEFAULT 0,        -- attempts since the latest requeue
	crashes         INTEGER NOT NULL DEFAULT 0,        -- relays that died while delivering it, since the latest result
	next_attempt_at INTEGER NOT NULL DEFAULT ({now}),
	created_at      INTEGER NOT NULL DEFAULT ({now}),
	requeued_at     INTEGER,                           -- latest requeue; NULL: never
	failing_since   INTEGER,                           -- first failed attempt since requeued_at; NULL: none
	finished_at     INTEGER,                           -- NULL: pending
	last_error      TEXT NOT NULL DEFAULT '',
	note            TEXT NOT NULL DEFAULT ''           -- set by a requeue
) STRICT;

-- The outcome of each attempt. For each message, only the first and the latest attempts are kept.
CREATE TABLE IF NOT EXISTS {attempts} (
	message INTEGER NOT NULL REFERENCES {messages_name} (seq) ON DELETE CASCADE,
	attempt INTEGER NOT NULL,
	at      INTEGER NOT NULL,                          -- end of the attempt
	took    INTEGER NOT NULL,                          -- in microseconds
	node    TEXT NOT NULL,
	outcome TEXT NOT NULL CHECK (outcome IN ('ok', 'permanent', 'transient', 'exhausted',
		'unreadable')),
	error   TEXT NOT NULL,
	PRIMARY KEY (message, attempt)
) STRICT, WITHOUT ROWID;

-- The messages that receivers have processed.
CREATE TABLE IF NOT EXISTS {inbox} (
	consumer    TEXT NOT NULL,
	message_id  BLOB NOT NULL,
	received_at INTEGER NOT NULL DEFAULT ({now}),
	PRIMARY KEY (consumer, message_id)
) STRICT, WITHOUT ROWID;

-- How keys are distributed over shards. The table has one row.
CREATE TABLE IF NOT EXISTS {layout} (
	id     INTEGER PRIMARY KEY CHECK (id = 1),
	shards INTEGER NOT NULL,
	epoch  INTEGER NOT NULL                            -- grows when shards changes
) STRICT;

-- name: indexes
-- Finds deliverable messages in order.
CREATE INDEX IF NOT EXISTS {pending} ON {messages_name} (seq) WHERE state = 'pending';

-- Finds the keys of messages not tried yet, and the first messages of each key.
CREATE INDEX IF NOT EXISTS {fresh} ON {messages_name} (key, seq) WHERE state = 'pending' AND tried = 0;

-- Finds the topics of pending messages, and the messages that wait for a sink for their topic.
CREATE INDEX IF NOT EXISTS {topics} ON {messages_name} (topic, key, seq) WHERE state = 'pending';

-- Find messages that hold back later messages of their key.
CREATE INDEX IF NOT EXISTS {retried} ON {messages_name} (key, seq)
	WHERE state = 'pending' AND tried > 0 AND key <> '';
CREATE INDEX IF NOT EXISTS {dead_keys} ON {messages_name} (key, seq) WHERE state = 'dead' AND key <> '';

-- Finds the messages to retry, and when.
CREATE INDEX IF NOT EXISTS {backoff} ON {messages_name} (next_attempt_at) WHERE state = 'pending' AND tried > 0;

-- Finds the messages that have failed for longest.
CREATE INDEX IF NOT EXISTS {failing} ON {messages_name} (failing_since)
	WHERE state = 'pending' AND failing_since IS NOT NULL;

-- Finds the messages that were requeued last.
CREATE INDEX IF NOT EXISTS {requeued} ON {messages_name} (seq)
	WHERE state = 'pending' AND requeued_at IS NOT NULL;

-- Finds old messages and counts dead letters.
CREATE INDEX IF NOT EXISTS {finished} ON {messages_name} (state, finished_at) WHERE finished_at IS NOT NULL;

-- Finds the messages of a topic that ended last.
CREATE INDEX IF NOT EXISTS {ended} ON {messages_name} (topic, state, finished_at) WHERE finished_at IS NOT NULL;

CREATE INDEX IF NOT EXISTS {received} ON {inbox_name} (received_at);

INSERT INTO {layout} (id, shards, epoch) VALUES (1, 1, 1) ON CONFLICT (id) DO NOTHING;
