-- Never run against a server.

-- name: schema
-- The tables of the outbox. Times are UTC. Names are stored as binary UTF-8 because every collation
-- treats 'job' and 'job ' as the same name, and most treat 'job' and 'JOB' as the same.
IF OBJECT_ID({messages_text}, N'U') IS NULL
BEGIN
	CREATE TABLE {messages} (
		seq             bigint IDENTITY(1, 1) NOT NULL PRIMARY KEY CLUSTERED, -- order within a key
		message_id      binary(16) NOT NULL,
		topic           varbinary(200) NOT NULL,
		[key]           varbinary(200) NOT NULL,   -- 0x: unordered
		key_hash        bigint NOT NULL,           -- modulo the number of shards, it gives the shard
		payload         varbinary(max) NOT NULL,
		headers         nvarchar(max) NOT NULL     -- a JSON object whose values are strings
			CHECK (ISJSON(headers) = 1),
		state           varchar(10) COLLATE Latin1_General_BIN2 NOT NULL DEFAULT 'pending'
			CHECK (state IN ('pending', 'dispatched', 'dead')),
		attempts        int NOT NULL DEFAULT 0,    -- total so far; only grows
		tried           int NOT NULL DEFAULT 0,    -- attempts since the latest requeue
		crashes         int NOT NULL DEFAULT 0,    -- relays that died while delivering it, since the latest result
		next_attempt_at datetime2(6) NOT NULL DEFAULT SYSUTCDATETIME(),
		created_at      datetime2(6) NOT NULL DEFAULT SYSUTCDATETIME(),
		requeued_at     datetime2(6) NULL,         -- latest requeue; NULL: never
		failing_since   datetime2(6) NULL,         -- first failed attempt since requeued_at; NULL: none
		finished_at     datetime2(6) NULL,         -- NULL: pending
		last_error      nvarchar(max) NOT NULL DEFAULT N'',
		note            nvarchar(max) NOT NULL DEFAULT N'' -- set by a requeue
	);
	CREATE UNIQUE INDEX message_id ON {messages} (message_id);
	-- finds deliverable messages in order
	CREATE INDEX pending ON {messages} (seq) WHERE state = 'pending';
	-- finds the keys of messages not tried yet, and the first messages of each key
	CREATE INDEX fresh ON {messages} ([key], seq) WHERE state = 'pending' AND tried = 0;
	-- finds messages that wait for a sink for their topic
	CREATE INDEX topics ON {messages} (topic, [key], seq) WHERE state = 'pending';
	-- find messages that hold back later messages of their key
	CREATE INDEX retried ON {messages} ([key], seq) WHERE state = 'pending' AND tried > 0;
	CREATE INDEX dead_keys ON {messages} ([key], seq) WHERE state = 'dead';
	-- finds messages to retry, and when
	CREATE INDEX backoff ON {messages} (next_attempt_at) WHERE state = 'pending' AND tried > 0;
	-- finds messages that have failed for longest
	CREATE INDEX failing ON {messages} (failing_since) WHERE state = 'pending' AND failing_since IS NOT NULL;
	-- finds messages that were requeued last
	CREATE INDEX requeued ON {messages} (seq) INCLUDE (requeued_at) WHERE state = 'pending' AND requeued_at IS NOT NULL;
	-- finds old messages and counts dead letters
	CREATE INDEX finished ON {messages} (state, finished_at) WHERE finished_at IS NOT NULL;
	-- finds the messages of a topic that ended last
	CREATE INDEX ended ON {messages} (topic, state, finished_at) WHERE finished_at IS NOT NULL;
	-- what became of each attempt, except those between the first and the latest of a message
	CREATE TABLE {attempts} (
		message bigint NOT NULL REFERENCES {messages} (seq) ON DELETE CASCADE,
		attempt int NOT NULL,
		at      datetime2(6) NOT NULL,             -- end of the attempt
		took    bigint NOT NULL,                   -- in microseconds
		node    nvarchar(1000) NOT NULL,
		outcome varchar(10) COLLATE Latin1_General_BIN2 NOT NULL
			CHECK (outcome IN ('ok', 'permanent', 'transient', 'exhausted',
		'unreadable')),
		error   nvarchar(max) NOT NULL,
		PRIMARY KEY CLUSTERED (message, attempt)
	);
	-- the messages that receivers have processed
	CREATE TABLE {inbox} (
		consumer    varbinary(200) NOT NULL,
		message_id  binary(16) NOT NULL,
		received_at datetime2(6) NOT NULL DEFAULT SYSUTCDATETIME(),
		PRIMARY KEY CLUSTERED (consumer, message_id),
		INDEX received NONCLUSTERED (received_at)
	);
	-- how keys are distributed over shards; the table has one row
	CREATE TABLE {layout} (
		id     int NOT NULL PRIMARY KEY CHECK (id = 1),
		shards int NOT NULL,
		epoch  bigint NOT NULL                     -- grows when shards changes
	);
END

-- name: indexes
INSERT INTO {layout} (id, shards, epoch) SELECT 1, 1, 1 WHERE NOT EXISTS (SELECT 1 FROM {layout} AS l WHERE l.id = 1)
