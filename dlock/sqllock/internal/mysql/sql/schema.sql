-- name: schema
-- The locks of tickslot. Each row (resource_name, slot) is one lock: 'timer:orders:slot:' and 3
-- stand for the lock timer:orders:slot:3.
--
-- A release keeps the row, because it stores the fence and the last holder. The row with slot -1
-- stores the values of the whole name. Times are UTC. Text is binary because a collation may treat
-- 'job', 'JOB' and 'job ' as the same name. Some clients therefore show names as 0x74...
CREATE TABLE IF NOT EXISTS {table} (
	resource_name VARBINARY(544) NOT NULL,
	slot          INT NOT NULL,
	lock_id       VARBINARY(64),               -- secret of the attempt that holds, or held, the lock
	fence         BIGINT NOT NULL DEFAULT 0,   -- grows with every grant
	acquired_at   DATETIME(6),
	renewed_at    DATETIME(6),                 -- when it was last granted or extended
	expires_at    DATETIME(6),                 -- 1970 after a release
	released_at   DATETIME(6),
	host_name     VARCHAR(255) CHARACTER SET utf8mb4,
	process_id    BIGINT,
	process_tag   VARCHAR(255) CHARACTER SET utf8mb4,
	revoked       TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, -- who revoked the lease, and why; it is not extended
	tick          BIGINT,                      -- slot -1: the latest tick claimed, in microseconds since 1970
	                                           --          (claimed by host_name and so on),
	tick_starts   INT,                         --          how often it was started,
	tick_schedule BIGINT,                      --          its schedule,
	asked_schedule BIGINT,                     --          a schedule that was requested before a tick of it
	asked_at      BIGINT,                      --          was claimed, and since when, in microseconds since 1970,
	slots         INT,                         --          how many slots the latest grant declared,
	succeeded_at  DATETIME(6),                 --          when a grant was last released as succeeded,
	overrides_version BIGINT,                 --          version of the overrides, which grows with every update,
	paused_until  DATETIME(6),
	resumed_at    DATETIME(6),                --          when a pause, or a limit of 0, last ended,
	pause_origin  TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, -- who changed it, and why,
	slot_limit    INT,                         --          how many slots there are, overriding the declared number,
	limit_origin  TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
	triggered_at  BIGINT,                      --          and when a run was requested, in microseconds since 1970
	trigger_origin TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
	kept_value     MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, --  what Controller.Value returns,
	starts         VARBINARY(1664),            --          starts that count towards a rate: see package startlog
	PRIMARY KEY (resource_name, slot),
	KEY ends (resource_name, expires_at, slot), -- finds the slot whose lease ends first
	KEY holders (lock_id)                       -- finds the grant of an attempt when its request is repeated
) ENGINE = InnoDB DEFAULT CHARACTER SET = utf8mb4

-- name: routines
SELECT COUNT(*) FROM information_schema.ROUTINES
WHERE ROUTINE_SCHEMA = COALESCE(?, DATABASE()) AND ROUTINE_NAME IN (?, ?, ?, ?, ?, ?) AND ROUTINE_TYPE = 'PROCEDURE'
	AND (CAST(ROUTINE_NAME AS BINARY) IN (?, ?, ?, ?, ?, ?) OR @@lower_case_table_names > 0)
