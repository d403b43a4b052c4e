-- name: schema
-- The messages. Times are UTC. Names are binary because a collation may take 'job', 'JOB' and
-- 'job ' for one; some clients therefore show them as 0x74... The last columns are NULL in rows
-- that their indexes are not to find.
CREATE TABLE IF NOT EXISTS {messages} (
	seq             BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, -- the order in a key
	message_id      BINARY(16) NOT NULL,
	topic           VARBINARY(200) NOT NULL,
	`key`           VARBINARY(200) NOT NULL,        -- '': in no order
	key_hash        INT UNSIGNED NOT NULL,          -- its remainder is the shard
	payload         LONGBLOB NOT NULL,
	headers         LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL -- JSON: an object of strings
		CHECK (JSON_VALID(headers) AND JSON_TYPE(headers) = 'OBJECT'),
	state           VARBINARY(10) NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'dispatched', 'dead')),
	attempts        INT NOT NULL DEFAULT 0,         -- so far: only grows
	tried           INT NOT NULL DEFAULT 0,         -- attempts since the latest requeue
	crashes         INT NOT NULL DEFAULT 0,         -- relays that died delivering it, since the latest result
	next_attempt_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
	created_at      DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
	requeued_at     DATETIME(6),                    -- the latest time; NULL: never
	failing_since   DATETIME(6),                    -- the first failed attempt since then; NULL: none
	finished_at     DATETIME(6),                    -- NULL: it is pending
	last_error      LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT (''),
	note            LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT (''), -- of who requeued it
	pending_topic   VARBINARY(200) AS (CASE WHEN state = 'pending' THEN topic END) VIRTUAL,
	fresh_key       VARBINARY(200) AS (CASE WHEN state = 'pending' AND tried = 0 THEN `key` END) VIRTUAL,
	retried_key     VARBINARY(200) AS (
		CASE WHEN state = 'pending' AND tried > 0 AND `key` <> '' THEN `key` END) VIRTUAL,
	dead_key        VARBINARY(200) AS (CASE WHEN state = 'dead' AND `key` <> '' THEN `key` END) VIRTUAL,
	is_requeued     INT AS (CASE WHEN state = 'pending' AND requeued_at IS NOT NULL THEN 1 END) VIRTUAL,
	retry_at        DATETIME(6) AS (CASE WHEN state = 'pending' AND tried > 0 THEN next_attempt_at END) VIRTUAL,
	failing_at      DATETIME(6) AS (CASE WHEN state = 'pending' THEN failing_since END) VIRTUAL,
	UNIQUE KEY message_id (message_id),
	KEY pending (state, seq),                       -- finds what can be delivered, in order
	KEY fresh (fresh_key, seq),                     -- finds keys, and the first messages of each
	KEY topics (pending_topic, `key`, seq),         -- finds what waits for a sink for its topic
	KEY retried (retried_key, seq),                 -- find what holds back the later messages of a key
	KEY dead_keys (dead_key, seq),
	KEY backoff (retry_at),                         -- finds what is tried again, and when
	KEY failing (failing_at),                       -- finds what has failed for longest
	KEY requeued (is_requeued, seq),                -- finds what was requeued last
	KEY finished (state, finished_at),              -- finds what is old, and counts what is dead
	KEY ended (topic, state, finished_at)           -- finds the messages of a topic that ended last
) ENGINE = InnoDB DEFAULT CHARACTER SET = utf8mb4 ROW_FORMAT = DYNAMIC;

-- What became of each attempt, except those between the first and the latest of a message.
CREATE TABLE IF NOT EXISTS {attempts} (
	message BIGINT NOT NULL,
	attempt INT NOT NULL,
	at      DATETIME(6) NOT NULL,                   -- its end
	took    BIGINT NOT NULL,                        -- in microseconds
	node    TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	outcome VARBINARY(10) NOT NULL CHECK (outcome IN ('ok', 'permanent', 'transient', 'exhausted',
		'unreadable')),
	error   LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	PRIMARY KEY (message, attempt),
	FOREIGN KEY (message) REFERENCES {messages} (seq) ON DELETE CASCADE
) ENGINE = InnoDB DEFAULT CHARACTER SET = utf8mb4 ROW_FORMAT = DYNAMIC;

-- What receivers have had.
CREATE TABLE IF NOT EXISTS {inbox} (
	consumer    VARBINARY(200) NOT NULL,
	message_id  BINARY(16) NOT NULL,
	received_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
	PRIMARY KEY (consumer, message_id),
	KEY received (received_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- How keys are spread over shards. It has one row.
CREATE TABLE IF NOT EXISTS {layout} (
	id     INT NOT NULL PRIMARY KEY CHECK (id = 1),
	shards INT NOT NULL,
	epoch  BIGINT NOT NULL                          -- grows when shards changes
) ENGINE = InnoDB;

-- name: indexes
INSERT INTO {layout} (id, shards, epoch) SELECT 1, 1, 1 FROM (SELECT 1 AS one) AS o
WHERE NOT EXISTS (SELECT 1 FROM {layout} AS l WHERE l.id = 1);
