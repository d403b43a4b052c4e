-- name: schema
-- What workers of tickslot's package durable share. Times are microseconds since 1970.
--
-- A schedule of which spec is '' was never registered by a worker: somebody has paused it before.
CREATE TABLE IF NOT EXISTS {schedules} (
	name            TEXT NOT NULL PRIMARY KEY,
	handler         TEXT NOT NULL DEFAULT '',
	spec            TEXT NOT NULL DEFAULT '',  -- what determines its ticks
	text            TEXT NOT NULL DEFAULT '',  -- what people are shown
	next_spec       TEXT NOT NULL DEFAULT '',  -- the spec for which next_due_at was computed
	next_due_at     INTEGER,                   -- the next tick; none: there is none, or none is known yet
	-- From when on it needs a plan; none: it needs none.
	plan_at         INTEGER AS (CASE WHEN next_spec <> spec THEN -1 ELSE next_due_at END),
	last_due_at     INTEGER,                   -- the latest tick that was accounted for
	paused_at       INTEGER,                   -- of the latest pause, as paused_until, also when it is over
	paused_until    INTEGER,
	paused_by       TEXT NOT NULL DEFAULT '',
	paused_note     TEXT NOT NULL DEFAULT '',
	ticks_queued    INTEGER NOT NULL DEFAULT 0,
	ticks_coalesced INTEGER NOT NULL DEFAULT 0,
	ticks_skipped   INTEGER NOT NULL DEFAULT 0,
	ticks_paused    INTEGER NOT NULL DEFAULT 0,
	seen_at         INTEGER,                   -- by a worker that has it
	created_at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- AUTOINCREMENT: the number of a run that was deleted is never given to another. (id, attempt,
-- claim) is the fence of all that a worker writes: attempt only grows, and an older copy of the
-- file that gives the same numbers again does not give the same claim.
CREATE TABLE IF NOT EXISTS {runs} (
	id               INTEGER PRIMARY KEY AUTOINCREMENT,
	handler          TEXT NOT NULL,
	schedule         TEXT,                        -- of which it is a tick
	due_at           INTEGER,                     -- the tick
	backfill         INTEGER NOT NULL DEFAULT 0,  -- it may wait beside others of its schedule
	state            TEXT NOT NULL DEFAULT 'queued'
		CHECK (state IN ('queued', 'running', 'succeeded', 'dead', 'canceled')),
	priority         INTEGER NOT NULL DEFAULT 0 CHECK (priority BETWEEN -1 AND 1),
	run_at           INTEGER NOT NULL,
	attempt          INTEGER NOT NULL DEFAULT 0,
	attempts_before  INTEGER NOT NULL DEFAULT 0,  -- that do not count: before a requeue, or given back
	own_max_attempts INTEGER NOT NULL DEFAULT 0,  -- 0: what the handler says
	max_attempts     INTEGER NOT NULL DEFAULT 0,  -- as said at the latest claim, with attempts_before; 0: any number
	crashes          INTEGER NOT NULL DEFAULT 0,  -- attempts since a requeue whose leases were lost
	failing_since    INTEGER,                     -- the first attempt since a requeue that failed began
	key              TEXT,
	-- Until when a second run of the handler with this key is refused: '' for ever, or the time in
	-- key_expires_at has come, after which whoever wants the key takes it.
	key_until        TEXT NOT NULL DEFAULT '' CHECK (key_until IN ('', 'started', 'ended')),
	key_expires_at   INTEGER,
	partition_key    TEXT NOT NULL DEFAULT '',    -- at most so many of them run at once; '': any number
	nonce            TEXT NOT NULL DEFAULT (lower(hex(randomblob(16)))), -- no other run of any file has it
	payload          BLOB,
	by               TEXT NOT NULL DEFAULT '',    -- who has queued it, and why
	note             TEXT NOT NULL DEFAULT '',
	traceparent      TEXT,                        -- of who has triggered it, as W3C Trace Context says
	canceled_by      TEXT,                        -- somebody has asked for it: who, and why
	canceled_note    TEXT,
	worker           TEXT NOT NULL DEFAULT '',
	claim            INTEGER NOT NULL DEFAULT 0,  -- the random value of the latest claim
	claimed_at       INTEGER,
	lease_until      INTEGER,
	last_error       TEXT NOT NULL DEFAULT '',
	created_at       INTEGER NOT NULL,
	finished_at      INTEGER
) STRICT;

-- One row for each attempt that has ended. Sweep deletes them with their run.
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

-- The handler '' stands for all of them together.
CREATE TABLE IF NOT EXISTS {handlers} (
	name            TEXT NOT NULL PRIMARY KEY,
	max_concurrency INTEGER NOT NULL DEFAULT 0,   -- of the worker that registered it last; 0: any number
	max_per_partition INTEGER NOT NULL DEFAULT 0, -- the same, as the next two
	rate            INTEGER NOT NULL DEFAULT 0,   -- starts within any per
	per             INTEGER NOT NULL DEFAULT 0,
	starts          TEXT NOT NULL DEFAULT '',     -- those that count towards a rate: see package startlog
	peers           TEXT NOT NULL DEFAULT '',     -- of workers that share max_concurrency: see store.Peers
	override        INTEGER,                      -- takes the place of max_concurrency
	override_by     TEXT NOT NULL DEFAULT '',
	override_note   TEXT NOT NULL DEFAULT '',
	paused_until    INTEGER,
	paused_by       TEXT NOT NULL DEFAULT '',
	paused_note     TEXT NOT NULL DEFAULT '',
	seen_at         INTEGER                       -- by a worker that has it
) STRICT, WITHOUT ROWID;

-- name: indexes
-- Finds the schedules that need a plan, and the next tick.
CREATE INDEX IF NOT EXISTS {plan_in} ON {schedules_name} (plan_at, name);

-- A tick has one run.
CREATE UNIQUE INDEX IF NOT EXISTS {tick_in} ON {runs_name} (schedule, due_at) WHERE schedule IS NOT NULL;

-- One run of a schedule waits for its first attempt.
CREATE UNIQUE INDEX IF NOT EXISTS {waits_in} ON {runs_name} (schedule)
	WHERE state = 'queued' AND attempt = 0 AND schedule IS NOT NULL AND NOT backfill;

CREATE UNIQUE INDEX IF NOT EXISTS {key_in} ON {runs_name} (handler, key) WHERE key IS NOT NULL
	AND CASE key_until WHEN 'started' THEN state = 'queued' AND attempt = 0
		WHEN 'ended' THEN state IN ('queued', 'running') ELSE true END;

-- Finds what to claim, in the order in which it is claimed. Here and below, state is in the index
-- so that SQLite need not look into the table for it.
CREATE INDEX IF NOT EXISTS {claim_in} ON {runs_name} (handler, priority, run_at, id, state)
	WHERE state = 'queued';

-- Counts what is running. A renewal does not change it, because it leaves out lease_until.
CREATE INDEX IF NOT EXISTS {running_in} ON {runs_name} (handler, state, partition_key) WHERE state = 'running';

-- Finds the partitions of a handler, and what is due of each.
CREATE INDEX IF NOT EXISTS {partition_in} ON {runs_name} (handler, partition_key, priority, run_at, id, state)
	WHERE state = 'queued';

-- Counts and lists dead letters.
CREATE INDEX IF NOT EXISTS {dead_in} ON {runs_name} (handler, state) WHERE state = 'dead';

-- Finds what is too old.
CREATE INDEX IF NOT EXISTS {ended_in} ON {runs_name} (state, finished_at) WHERE finished_at IS NOT NULL;

-- Finds when the last run of a handler succeeded, and the outcomes of the last ones.
CREATE INDEX IF NOT EXISTS {history_in} ON {runs_name} (handler, state, finished_at) WHERE finished_at IS NOT NULL;

-- Finds the runs of a handler that have failed and wait to be tried again.
CREATE INDEX IF NOT EXISTS {retried_in} ON {runs_name} (handler, failing_since, state)
	WHERE state = 'queued' AND failing_since IS NOT NULL;
