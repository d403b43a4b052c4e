-- The registry of tickslot: who is there, who holds what, and what happened.
--
-- sort is 'host', 'lease', 'event' or 'run'. For a lease the columns up to released_at say what the
-- holder last reported. Times are UTC. Names and ids are binary because a collation may take 'job',
-- 'JOB' and 'job ' for one; some clients therefore show them as 0x74... Ids are cut and end with a
-- hash if they are long.
CREATE TABLE IF NOT EXISTS {table} (
	sort        VARBINARY(8) NOT NULL,
	id          VARBINARY(255) NOT NULL,       -- lease: the slot, if it is a semaphore, a colon, and the name
	lock_name   VARBINARY(512) NOT NULL,       -- run: the timer
	node_id     VARCHAR(300) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, -- machine/pid
	machine     VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	pid         BIGINT NOT NULL,
	holder_id   VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, -- tells processes apart
	kind        VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, -- run: its outcome
	slot        INT NOT NULL,
	slots       INT NOT NULL,                  -- 0: a mutex
	fence       BIGINT NOT NULL,
	grant_id    VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, -- tells grants apart
	acquired_at DATETIME(6),                   -- host: when it started
	renewed_at  DATETIME(6),                   -- host: when it was last seen
	expires_at  DATETIME(6),
	released_at DATETIME(6),                   -- host: when it stopped in good order
	happened_at DATETIME(6),                   -- of an event, and the end of a run; else NULL
	ttl         BIGINT,                        -- of a host, in microseconds
	up_for      BIGINT,                        -- of a host, when it was last seen, in microseconds
	data        TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, -- the rest, as JSON
	detail      LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,      -- of a host, as JSON
	taken       TINYINT NOT NULL DEFAULT 0,    -- 1 if the last write replaced the row: used within one statement only
	PRIMARY KEY (sort, id),
	KEY recent (sort, happened_at, id),        -- finds the newest events and runs of all
	KEY named (sort, lock_name, happened_at, id) -- finds the newest runs of a timer
) ENGINE = InnoDB DEFAULT CHARACTER SET = utf8mb4 ROW_FORMAT = DYNAMIC
