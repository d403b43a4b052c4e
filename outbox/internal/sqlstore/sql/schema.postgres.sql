-- name: schema
-- The messages. Names are compared byte by byte. Each page has room for new versions of its rows,
-- because each message is written at least twice.
CREATE TABLE IF NOT EXISTS {messages} (
	seq             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- order within a key
	message_id      uuid NOT NULL CONSTRAINT {message_id} UNIQUE,
	topic           text COLLATE "C" NOT NULL,
	key             text COLLATE "C" NOT NULL,          -- '': unordered
	key_hash        bigint NOT NULL                     -- modulo the number of shards, it gives the shard
		CHECK (key_hash BETWEEN 0 AND 4294967295),
	payload         bytea NOT NULL,
	headers         text COLLATE "C" NOT NULL           -- a JSON object whose values are strings
		CHECK (pg_catalog.json_typeof(headers::json) = 'object'), -- jsonb could not store NUL
	state           text COLLATE "C" NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'dispatched', 'dead')),
	attempts        integer NOT NULL DEFAULT 0,         -- total so far; only grows
	tried           integer NOT NULL DEFAULT 0,         -- attempts since the latest requeue
	crashes         integer NOT NULL DEFAULT 0,         -- relays that died while delivering it, since the latest result
	next_attempt_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	created_at      timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	requeued_at     timestamptz,                        -- latest requeue; NULL: never
	failing_since   timestamptz,                        -- first failed attempt since requeued_at; NULL: none
	finished_at     timestamptz,                        -- NULL: pending
	last_error      text COLLATE "C" NOT NULL DEFAULT '',
	note            text COLLATE "C" NOT NULL DEFAULT '' -- set by a requeue
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500,
	autovacuum_analyze_scale_factor = 0.02, autovacuum_analyze_threshold = 500);

-- The outcome of each attempt. For each message, only the first and the latest attempts are kept.
CREATE TABLE IF NOT EXISTS {attempts} (
	message bigint NOT NULL REFERENCES {messages} (seq) ON DELETE CASCADE,
	attempt integer NOT NULL,
	at      timestamptz NOT NULL,               -- end of the attempt
	took    bigint NOT NULL,                    -- in microseconds
	node    text COLLATE "C" NOT NULL,
	outcome text COLLATE "C" NOT NULL CHECK (outcome IN ('ok', 'permanent', 'transient', 'exhausted',
		'unreadable')),
	error   text COLLATE "C" NOT NULL,
	PRIMARY KEY (message, attempt)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05);

-- The messages that receivers have processed.
CREATE TABLE IF NOT EXISTS {inbox} (
	consumer    text COLLATE "C" NOT NULL,
	message_id  uuid NOT NULL,
	received_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	PRIMARY KEY (consumer, message_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05);

-- How keys are distributed over shards. The table has one row.
CREATE TABLE IF NOT EXISTS {layout} (
	id     integer PRIMARY KEY CHECK (id = 1),
	shards integer NOT NULL,
	epoch  bigint NOT NULL                      -- grows when shards changes
);

-- name: indexes
-- Finds deliverable messages in order.
CREATE INDEX IF NOT EXISTS {pending} ON {messages} (seq) WHERE state = 'pending';

-- Finds the keys of messages not tried yet, and the first messages of each key.
CREATE INDEX IF NOT EXISTS {fresh} ON {messages} (key, seq) WHERE state = 'pending' AND tried = 0;

-- Finds the topics of pending messages, and the messages that wait for a sink for their topic.
CREATE INDEX IF NOT EXISTS {topics} ON {messages} (topic, key, seq) WHERE state = 'pending';

-- Find messages that hold back later messages of their key.
CREATE INDEX IF NOT EXISTS {retried} ON {messages} (key, seq) WHERE state = 'pending' AND tried > 0 AND key <> '';
CREATE INDEX IF NOT EXISTS {dead_keys} ON {messages} (key, seq) WHERE state = 'dead' AND key <> '';

-- Finds the messages to retry, and when.
CREATE INDEX IF NOT EXISTS {backoff} ON {messages} (next_attempt_at) WHERE state = 'pending' AND tried > 0;

-- Finds the messages that have failed for longest.
CREATE INDEX IF NOT EXISTS {failing} ON {messages} (failing_since)
	WHERE state = 'pending' AND failing_since IS NOT NULL;

-- Finds the messages that were requeued last.
CREATE INDEX IF NOT EXISTS {requeued} ON {messages} (seq) WHERE state = 'pending' AND requeued_at IS NOT NULL;

-- Finds old messages and counts dead letters.
CREATE INDEX IF NOT EXISTS {finished} ON {messages} (state, finished_at) WHERE finished_at IS NOT NULL;

-- Finds the messages of a topic that ended last.
CREATE INDEX IF NOT EXISTS {ended} ON {messages} (topic, state, finished_at) WHERE finished_at IS NOT NULL;

CREATE INDEX IF NOT EXISTS {received} ON {inbox} (received_at);

INSERT INTO {layout} (id, shards, epoch) VALUES (1, 1, 1) ON CONFLICT DO NOTHING;
