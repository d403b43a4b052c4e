-- name: schema
-- The messages. Times are microseconds since 1970.
CREATE TABLE IF NOT EXISTS {messages} (
	seq             INTEGER PRIMARY KEY AUTOINCREMENT, -- the order in a key
	message_id      BLOB NOT NULL UNIQUE CHECK (length(message_id) = 16),
	topic           TEXT NOT NULL,
	key             TEXT NOT NULL,                     -- '': in no order
	key_hash        INTEGER NOT NULL                   -- its remainder is the shard
		CHECK (key_hash BETWEEN 0 AND 4294967295),
	payload         BLOB NOT NULL,
	headers         TEXT NOT NULL                      -- an object of JSON whose values are strings
		CHECK (json_valid(headers) AND json_type(headers) = 'object'),
	state           TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'dispatched', 'dead')),
	attempts        INTEGER NOT NULL DEFAULT 0,        -- so far: only grows
	tried           INTEGER NOT NULL DEFAULT 0,        -- attempts since the latest requeue
	crashes         INTEGER NOT NULL DEFAULT 0,        -- relays that died delivering it, since the latest result
	next_attempt_at INTEGER NOT NULL DEFAULT ({now}),
	created_at      INTEGER NOT NULL DEFAULT ({now}),
	requeued_at     INTEGER,                           -- the latest time; NULL: never
	failing_since   INTEGER,                           -- the first failed attempt since then; NULL: none
	finished_at     INTEGER,                           -- NULL: it is pending
	last_error      TEXT NOT NULL DEFAULT '',
	note            TEXT NOT NULL DEFAULT ''           -- of who requeued it
) STRICT;

-- What became of each attempt, except those between the first and the latest of a message.
CREATE TABLE IF NOT EXISTS {attempts} (
	message INTEGER NOT NULL REFERENCES {messages_name} (seq) ON DELETE CASCADE,
	attempt INTEGER NOT NULL,
	at      INTEGER NOT NULL,                          -- its end
	took    INTEGER NOT NULL,                          -- in microseconds
	node    TEXT NOT NULL,
	outcome TEXT NOT NULL CHECK (outcome IN ('ok', 'permanent', 'transient', 'exhausted',
		'unreadable')),
	error   TEXT NOT NULL,
	PRIMARY KEY (message, attempt)
) STRICT, WITHOUT ROWID;

-- What receivers have had.
CREATE TABLE IF NOT EXISTS {inbox} (
	consumer    TEXT NOT NULL,
	message_id  BLOB NOT NULL,
	received_at INTEGER NOT NULL DEFAULT ({now}),
	PRIMARY KEY (consumer, message_id)
) STRICT, WITHOUT ROWID;

-- How keys are spread over shards. It has one row.
CREATE TABLE IF NOT EXISTS {layout} (
	id     INTEGER PRIMARY KEY CHECK (id = 1),
	shards INTEGER NOT NULL,
	epoch  INTEGER NOT NULL                            -- grows when shards changes
) STRICT;

-- name: indexes
-- Finds what can be delivered, in order.
CREATE INDEX IF NOT EXISTS {pending} ON {messages_name} (seq) WHERE state = 'pending';

-- Finds the keys of what was not tried yet, and the first messages of each.
CREATE INDEX IF NOT EXISTS {fresh} ON {messages_name} (key, seq) WHERE state = 'pending' AND tried = 0;

-- Finds the topics of pending messages, and what waits for a sink for its topic.
CREATE INDEX IF NOT EXISTS {topics} ON {messages_name} (topic, key, seq) WHERE state = 'pending';

-- Find what holds back the later messages of a key.
CREATE INDEX IF NOT EXISTS {retried} ON {messages_name} (key, seq)
	WHERE state = 'pending' AND tried > 0 AND key <> '';
CREATE INDEX IF NOT EXISTS {dead_keys} ON {messages_name} (key, seq) WHERE state = 'dead' AND key <> '';

-- Finds what is tried again, and when.
CREATE INDEX IF NOT EXISTS {backoff} ON {messages_name} (next_attempt_at) WHERE state = 'pending' AND tried > 0;

-- Finds what has failed for longest.
CREATE INDEX IF NOT EXISTS {failing} ON {messages_name} (failing_since)
	WHERE state = 'pending' AND failing_since IS NOT NULL;

-- Finds what was requeued last.
CREATE INDEX IF NOT EXISTS {requeued} ON {messages_name} (seq)
	WHERE state = 'pending' AND requeued_at IS NOT NULL;

-- Finds what is old, and counts what is dead.
CREATE INDEX IF NOT EXISTS {finished} ON {messages_name} (state, finished_at) WHERE finished_at IS NOT NULL;

-- Finds the messages of a topic that ended last.
CREATE INDEX IF NOT EXISTS {ended} ON {messages_name} (topic, state, finished_at) WHERE finished_at IS NOT NULL;

CREATE INDEX IF NOT EXISTS {received} ON {inbox_name} (received_at);

INSERT INTO {layout} (id, shards, epoch) VALUES (1, 1, 1) ON CONFLICT (id) DO NOTHING;
