-- name: schema
-- The messages. Times are UTC. Names are binary because a collation may treat 'job', 'JOB' and 'job
-- ' as the same name. Some clients therefore show names as 0x74... The last columns are NULL in
-- rows that their indexes must not find.
CREATE TABLE IF NOT EXISTS {messages} (
	seq             BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, -- order within a key
	message_id      BINARY(16) NOT NULL,
	topic           VARBINARY(200) NOT NULL,
	`key`           VARBINARY(200) NOT NULL,        -- '': unordered
	key_hash        INT UNSIGNED NOT NULL,          -- modulo the number of shards, it gives the shard
	payload         LONGBLOB NOT NULL,
	headers         LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL -- a JSON object of strings
		CHECK (JSON_VALID(headers) AND JSON_TYPE(headers) = 'OBJECT'),
	state           VARBINARY(10) NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'dispatched', 'dead')),
	attempts        INT NOT NULL DEFAULT 0,         -- total so far; only grows
	tried           INT NOT NULL DEFAULT 0,         -- attempts since the latest requeue
	crashes         INT NOT NULL DEFAULT 0,         -- relays that died while delivering it, since the latest result
	next_attempt_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
	created_at      DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
	requeued_at     DATETIME(6),                    -- latest requeue; NULL: never
	failing_since   DATETIME(6),                    -- first failed attempt since requeued_at; NULL: none
	finished_at     DATETIME(6),                    -- NULL: pending
	last_error      LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT (''),
	note            LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT (''), -- set by a requeue
	pending_topic   VARBINARY(200) AS (CASE WHEN state = 'pending' THEN topic END) VIRTUAL,
	fresh_key       VARBINARY(200) AS (CASE WHEN state = 'pending' AND tried = 0 THEN `key` END) VIRTUAL,
	retried_key     VARBINARY(200) AS (
		CASE WHEN state = 'pending' AND tried > 0 AND `key` <> '' THEN `key` END) VIRTUAL,
	dead_key        VARBINARY(200) AS (CASE WHEN state = 'dead' AND `key` <> '' THEN `key` END) VIRTUAL,
	is_requeued     INT AS (CASE WHEN state = 'pending' AND requeued_at IS NOT NULL THEN 1 END) VIRTUAL,
	retry_at        DATETIME(6) AS (CASE WHEN state = 'pending' AND tried > 0 THEN next_attempt_at END) VIRTUAL,
	failing_at      DATETIME(6) AS (CASE WHEN state = 'pending' THEN failing_since END) VIRTUAL,
	UNIQUE KEY message_id (message_id),
	KEY pending (state, seq),                       -- finds deliverable messages in order
	KEY fresh (fresh_key, seq),                     -- finds keys and the first messages of each
	KEY topics (pending_topic, `key`, seq),         -- finds messages that wait for a sink for their topic
	KEY retried (retried_key, seq),                 -- find messages that hold back later messages of their key
	KEY dead_keys (dead_key, seq),
	KEY backoff (retry_at),                         -- finds what is tried again, and when
	KEY failing (failing_at),                       -- finds what has failed for longest
	KEY requeued (is_requeued, seq),                -- finds what was requeued last
	KEY finished (state, finished_at),              -- finds what is old, and counts what is dead
	KEY ended (topic, state, finished_at)           -- finds the messages of a topic that ended last
) ENGINE = InnoDB DEFAULT CHARACTER SET = utf8mb4 ROW_FORMAT = DYNAMIC;

-- The outcome of each attempt. For each message, only the first and the latest attempts are kept.
CREATE TABLE IF NOT EXISTS {attempts} (
	message BIGINT NOT NULL,
	attempt INT NOT NULL,
	at      DATETIME(6) NOT NULL,                   -- end of the attempt
	took    BIGINT NOT NULL,                        -- in microseconds
	node    TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	outcome VARBINARY(10) NOT NULL CHECK (outcome IN ('ok', 'permanent', 'transient', 'exhausted',
		'unreadable')),
	error   LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	PRIMARY KEY (message, attempt),
	FOREIGN KEY (message) REFERENCES {messages} (seq) ON DELETE CASCADE
) ENGINE = InnoDB DEFAULT CHARACTER SET = utf8mb4 ROW_FORMAT = DYNAMIC;

-- The messages that receivers have processed.
CREATE TABLE IF NOT EXISTS {inbox} (
	consumer    VARBINARY(200) NOT NULL,
	message_id  BINARY(16) NOT NULL,
	received_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
	PRIMARY KEY (consumer, message_id),
	KEY received (received_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- How keys are distributed over shards. The table has one row.
CREATE TABLE IF NOT EXISTS {layout} (
	id     INT NOT NULL PRIMARY KEY CHECK (id = 1),
	shards INT NOT NULL,
	epoch  BIGINT NOT NULL                          -- grows when shards changes
) ENGINE = InnoDB;

-- name: indexes
INSERT INTO {layout} (id, shards, epoch) SELECT 1, 1, 1 FROM (SELECT 1 AS one) AS o
WHERE NOT EXISTS (SELECT 1 FROM {layout} AS l WHERE l.id = 1);
