-- name: schema
-- The locks of tickslot. Each row (resource_name, slot) is one lock: 'timer:orders:slot:' and 3
-- stand for the lock timer:orders:slot:3.
--
-- A release keeps the row, because it stores the fence and the last holder. The row with slot -1
-- stores the values of the whole name. Times are microseconds since 1970.
CREATE TABLE IF NOT EXISTS {table} (
	resource_name TEXT NOT NULL,
	slot          INTEGER NOT NULL,
	lock_id       TEXT,                        -- secret of the attempt that holds, or held, the lock
	fence         INTEGER NOT NULL DEFAULT 0,  -- grows with every grant
	acquired_at   INTEGER,
	renewed_at    INTEGER,                     -- when it was last granted or extended
	expires_at    INTEGER,                     -- 0 after a release
	released_at   INTEGER,
	host_name     TEXT,
	process_id    INTEGER,
	process_tag   TEXT,
	revoked       TEXT,                        -- who revoked the lease, and why; it is not extended
	tick          INTEGER,                     -- slot -1: the latest tick claimed; claimed by host_name and so on,
	tick_starts   INTEGER,                     --          how often it was started,
	tick_schedule INTEGER,                     --          its schedule,
	asked_schedule INTEGER,                    --          a schedule that was requested before a tick of it
	asked_at      INTEGER,                     --          was claimed, and since when,
	slots         INTEGER,                     --          how many slots the latest grant declared,
	succeeded_at  INTEGER,                     --          when a grant was last released as succeeded,
	overrides_version INTEGER,                --          version of the overrides, which grows with every update,
	paused_until  INTEGER,
	resumed_at    INTEGER,                    --          when a pause, or a limit of 0, last ended,
	pause_origin  TEXT,                        --          who changed it, and why,
	slot_limit    INTEGER,                     --          how many slots there are, overriding the declared number,
	limit_origin  TEXT,
	triggered_at  INTEGER,                     --          and when a run was requested
	trigger_origin TEXT,
	kept_value     TEXT,                       --          what Controller.Value returns,
	starts         TEXT,                       --          starts that count towards a rate: see package startlog
	PRIMARY KEY (resource_name, slot)
) STRICT, WITHOUT ROWID;

-- name: indexes
-- Finds the slot whose lease ends first.
CREATE INDEX IF NOT EXISTS {ends_in} ON {name} (resource_name, expires_at, slot) WHERE slot >= 0;

-- Finds the grant of an attempt when its request is repeated.
CREATE INDEX IF NOT EXISTS {holders_in} ON {name} (lock_id) WHERE lock_id IS NOT NULL;
