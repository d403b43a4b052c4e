-- Never run against a server.

-- name: schema
-- The locks of tickslot. Each row (resource_name, slot) is one lock: 'timer:orders:slot:' and 3
-- stand for the lock timer:orders:slot:3.
--
-- A release keeps the row, because it stores the fence and the last holder. The row with slot -1
-- stores the values of the whole name. Times are UTC. Names are stored as binary UTF-8 because
-- every collation treats 'job' and 'job ' as the same name, and most treat 'job' and 'JOB' as the
-- same.
IF OBJECT_ID({table_text}, N'U') IS NULL
CREATE TABLE {table} (
	resource_name varbinary(544) NOT NULL,
	slot          int NOT NULL,
	lock_id       varbinary(64) NULL,          -- secret of the attempt that holds, or held, the lock
	fence         bigint NOT NULL DEFAULT 0,   -- grows with every grant
	acquired_at   datetime2(6) NULL,
	renewed_at    datetime2(6) NULL,           -- when it was last granted or extended
	expires_at    datetime2(6) NULL,           -- 1970 after a release
	released_at   datetime2(6) NULL,
	host_name     nvarchar(255) NULL,
	process_id    bigint NULL,
	process_tag   nvarchar(255) NULL,
	revoked       nvarchar(4000) NULL,         -- who revoked the lease, and why; it is not extended
	tick          bigint NULL,                 -- slot -1: the latest tick claimed, in µs since 1970
	                                           --          (claimed by host_name and so on),
	tick_starts   int NULL,                    --          how often it was started,
	tick_schedule bigint NULL,                 --          its schedule,
	asked_schedule bigint NULL,                --          a schedule that was requested before a tick of it
	asked_at      bigint NULL,                 --          was claimed, and since when, in µs since 1970,
	slots         int NULL,                    --          how many slots the latest grant declared,
	succeeded_at  datetime2(6) NULL,           --          when a grant was last released as succeeded,
	overrides_version bigint NULL,            --          version of the overrides, which grows with every update,
	paused_until  datetime2(6) NULL,
	resumed_at    datetime2(6) NULL,          --          when a pause, or a limit of 0, last ended,
	pause_origin  nvarchar(4000) NULL,         --          who changed it, and why,
	slot_limit    int NULL,                    --          how many slots there are, overriding the declared number,
	limit_origin  nvarchar(4000) NULL,
	triggered_at  bigint NULL,                 --          and when a run was requested, in µs since 1970
	trigger_origin nvarchar(4000) NULL,
	kept_value     nvarchar(max) NULL,         --          what Controller.Value returns
	PRIMARY KEY CLUSTERED (resource_name, slot),
	INDEX ends NONCLUSTERED (resource_name, expires_at, slot), -- finds the slot whose lease ends first
	INDEX holders NONCLUSTERED (lock_id)                       -- finds the grant of an attempt
)
