-- name: schema
-- The data that workers of tickslot's package durable share. Times are microseconds since 1970.
--
-- A schedule whose spec is '' was paused before any worker registered it.
CREATE TABLE IF NOT EXISTS {schedules} (
	name            TEXT NOT NULL PRIMARY KEY,
	handler         TEXT NOT NULL DEFAULT '',
	spec            TEXT NOT NULL DEFAULT '',  -- determines its ticks
	text            TEXT NOT NULL DEFAULT '',  -- description for people
	next_spec       TEXT NOT NULL DEFAULT '',  -- the spec for which next_due_at was computed
	next_due_at     INTEGER,                   -- the next tick; NULL: none, or not computed yet
	-- When the schedule next needs a plan; NULL: never.
	plan_at         INTEGER AS (CASE WHEN next_spec <> spec THEN -1 ELSE next_due_at END),
	last_due_at     INTEGER,                   -- the latest tick that was accounted for
	paused_at       INTEGER,                   -- start of the latest pause, kept after its end
	paused_until    INTEGER,
	paused_by       TEXT NOT NULL DEFAULT '',
	paused_note     TEXT NOT NULL DEFAULT '',
	ticks_queued    INTEGER NOT NULL DEFAULT 0,
	ticks_coalesced INTEGER NOT NULL DEFAULT 0,
	ticks_skipped   INTEGER NOT NULL DEFAULT 0,
	ticks_paused    INTEGER NOT NULL DEFAULT 0,
	seen_at         INTEGER,                   -- when a worker last registered it
	created_at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- With AUTOINCREMENT, the number of a deleted run is never used again. Every write of a worker is
-- fenced by (id, attempt, claim): attempt only grows, and a restored copy of the file may assign
-- the same numbers again, but not the same claim.
CREATE TABLE IF NOT EXISTS {runs} (
	id               INTEGER PRIMARY KEY AUTOINCREMENT,
	handler          TEXT NOT NULL,
	schedule         TEXT,                        -- schedule of the tick
	due_at           INTEGER,                     -- the tick
	backfill         INTEGER NOT NULL DEFAULT 0,  -- may wait while another run of its schedule waits
	state            TEXT NOT NULL DEFAULT 'queued'
		CHECK (state IN ('queued', 'running', 'succeeded', 'dead', 'canceled')),
	priority         INTEGER NOT NULL DEFAULT 0 CHECK (priority BETWEEN -1 AND 1),
	run_at           INTEGER NOT NULL,
	attempt          INTEGER NOT NULL DEFAULT 0,
	attempts_before  INTEGER NOT NULL DEFAULT 0,  -- attempts that do not count: before a requeue, or given back
	own_max_attempts INTEGER NOT NULL DEFAULT 0,  -- limit of this run; 0: the limit of the handler
	max_attempts     INTEGER NOT NULL DEFAULT 0,  -- limit at the latest claim, plus attempts_before; 0: any number
	crashes          INTEGER NOT NULL DEFAULT 0,  -- attempts since a requeue whose leases were lost
	failing_since    INTEGER,                     -- when the first failed attempt since a requeue began
	key              TEXT,
	-- How long a second run of the handler with this key is refused. '' means forever. After the
	-- time in key_expires_at, the next trigger with the key takes it over.
	key_until        TEXT NOT NULL DEFAULT '' CHECK (key_until IN ('', 'started', 'ended')),
	key_expires_at   INTEGER,
	partition_key    TEXT NOT NULL DEFAULT '',    -- its runs share the limit max_per_partition; '': no limit
	nonce            TEXT NOT NULL DEFAULT (lower(hex(randomblob(16)))), -- unique across all files
	payload          BLOB,
	by               TEXT NOT NULL DEFAULT '',    -- who queued it, and why
	note             TEXT NOT NULL DEFAULT '',
	traceparent      TEXT,                        -- trace of the trigger, in the W3C Trace Context format
	canceled_by      TEXT,                        -- who requested cancellation, and why
	canceled_note    TEXT,
	worker           TEXT NOT NULL DEFAULT '',
	claim            INTEGER NOT NULL DEFAULT 0,  -- random value of the latest claim
	claimed_at       INTEGER,
	lease_until      INTEGER,
	last_error       TEXT NOT NULL DEFAULT '',
	created_at       INTEGER NOT NULL,
	finished_at      INTEGER
) STRICT;

-- One row for each attempt that has ended. Sweep deletes the rows with their run.
CREATE TABLE IF NOT EXISTS {attempts} (
	run_id      INTEGER NOT NULL,
	attempt     INTEGER NOT NULL,
	worker      TEXT NOT NULL,
	started_at  INTEGER NOT NULL,
	finished_at INTEGER NOT NULL,
	outcome     TEXT NOT NULL,
	error       TEXT NOT NULL DEFAULT '',
	claim       INTEGER NOT NULL DEFAULT 0,
	PRIMARY KEY (run_id, attempt)
) STRICT, WITHOUT ROWID;

-- The handler '' stands for all handlers together.
CREATE TABLE IF NOT EXISTS {handlers} (
	name            TEXT NOT NULL PRIMARY KEY,
	max_concurrency INTEGER NOT NULL DEFAULT 0,   -- from the worker that registered last; 0: any number
	max_per_partition INTEGER NOT NULL DEFAULT 0, -- set in code, as are the next two
	rate            INTEGER NOT NULL DEFAULT 0,   -- starts within any per
	per             INTEGER NOT NULL DEFAULT 0,
	starts          TEXT NOT NULL DEFAULT '',     -- starts that count towards a rate: see package startlog
	peers           TEXT NOT NULL DEFAULT '',     -- workers that share max_concurrency: see store.Peers
	override        INTEGER,                      -- replaces max_concurrency
	override_by     TEXT NOT NULL DEFAULT '',
	override_note   TEXT NOT NULL DEFAULT '',
	paused_until    INTEGER,
	paused_by       TEXT NOT NULL DEFAULT '',
	paused_note     TEXT NOT NULL DEFAULT '',
	seen_at         INTEGER                       -- when a worker last registered it
) STRICT, WITHOUT ROWID;

-- name: indexes
-- Finds the schedules that need a plan and the next tick.
CREATE INDEX IF NOT EXISTS {plan_in} ON {schedules_name} (plan_at, name);

-- Ensures that a tick has at most one run.
CREATE UNIQUE INDEX IF NOT EXISTS {tick_in} ON {runs_name} (schedule, due_at) WHERE schedule IS NOT NULL;

-- Ensures that at most one run of a schedule waits for its first attempt.
CREATE UNIQUE INDEX IF NOT EXISTS {waits_in} ON {runs_name} (schedule)
	WHERE state = 'queued' AND attempt = 0 AND schedule IS NOT NULL AND NOT backfill;

CREATE UNIQUE INDEX IF NOT EXISTS {key_in} ON {runs_name} (handler, key) WHERE key IS NOT NULL
	AND CASE key_until WHEN 'started' THEN state = 'queued' AND attempt = 0
		WHEN 'ended' THEN state IN ('queued', 'running') ELSE true END;

-- Finds runs in the order in which they are claimed. Here and below, the index includes state so
-- that SQLite does not have to read it from the table.
CREATE INDEX IF NOT EXISTS {claim_in} ON {runs_name} (handler, priority, run_at, id, state)
	WHERE state = 'queued';

-- Counts running runs. A renewal does not change this index, because the index does not contain
-- lease_until.
CREATE INDEX IF NOT EXISTS {running_in} ON {runs_name} (handler, state, partition_key) WHERE state = 'running';

-- Finds the partitions of a handler and the due runs of each.
CREATE INDEX IF NOT EXISTS {partition_in} ON {runs_name} (handler, partition_key, priority, run_at, id, state)
	WHERE state = 'queued';

-- Counts and lists dead letters.
CREATE INDEX IF NOT EXISTS {dead_in} ON {runs_name} (handler, state) WHERE state = 'dead';

-- Finds runs that are too old.
CREATE INDEX IF NOT EXISTS {ended_in} ON {runs_name} (state, finished_at) WHERE finished_at IS NOT NULL;

-- Finds when the last run of a handler succeeded, and the outcomes of the last ones.
CREATE INDEX IF NOT EXISTS {history_in} ON {runs_name} (handler, state, finished_at) WHERE finished_at IS NOT NULL;

-- Finds the runs of a handler that have failed and wait to be tried again.
CREATE INDEX IF NOT EXISTS {retried_in} ON {runs_name} (handler, failing_since, state)
	WHERE state = 'queued' AND failing_since IS NOT NULL;
