-- name: schema
-- The locks of tickslot. Each row (resource_name, slot) is one lock: 'timer:orders:slot:' and 3
-- stand for the lock timer:orders:slot:3.
--
-- A release keeps the row, because it stores the fence and the last holder. The row with slot -1
-- stores the values of the whole name.
CREATE TABLE IF NOT EXISTS {table} (
	resource_name text COLLATE "C" NOT NULL,
	slot          integer NOT NULL,
	lock_id       text COLLATE "C",            -- secret of the attempt that holds, or held, the lock
	fence         bigint NOT NULL DEFAULT 0,   -- grows with every grant
	acquired_at   timestamptz,
	renewed_at    timestamptz,                 -- when it was last granted or extended
	expires_at    timestamptz NOT NULL DEFAULT 'epoch', -- 1970 after a release
	released_at   timestamptz,
	host_name     text,
	process_id    bigint,
	process_tag   text,
	revoked       text,                        -- who revoked the lease, and why; it is not extended
	tick          bigint,                      -- slot -1: the latest tick claimed, in µs since 1970
	                                           --          (claimed by host_name and so on),
	tick_starts   integer,                     --          how often it was started,
	tick_schedule bigint,                      --          its schedule,
	asked_schedule bigint,                     --          a schedule that was requested before a tick of it
	asked_at      bigint,                      --          was claimed, and since when, in µs since 1970,
	slots         integer,                     --          how many slots the latest grant declared,
	succeeded_at  timestamptz,                 --          when a grant was last released as succeeded,
	overrides_version bigint,                 --          version of the overrides, which grows with every update,
	paused_until  timestamptz,
	resumed_at    timestamptz,                --          when a pause, or a limit of 0, last ended,
	pause_origin  text,                        --          who changed it, and why,
	slot_limit    integer,                     --          how many slots there are, overriding the declared number,
	limit_origin  text,
	triggered_at  bigint,                      --          and when a run was requested, in µs since 1970
	trigger_origin text,
	kept_value     text,                       --          what Controller.Value returns,
	starts         text,                       --          starts that count towards a rate: see package startlog
	PRIMARY KEY (resource_name, slot)
);

-- name: indexes
-- Finds the slot whose lease ends first.
CREATE INDEX IF NOT EXISTS {ends} ON {table} (resource_name, expires_at) WHERE slot >= 0;

-- Finds the grant of an attempt when its request is repeated.
CREATE INDEX IF NOT EXISTS {holders} ON {table} (lock_id) WHERE lock_id IS NOT NULL;
