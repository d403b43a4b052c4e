-- name: schema
-- The schedules that workers have registered. spec comes from the worker that started last, or is
-- '' if no worker has registered the schedule. next_due_at was computed for next_spec.
CREATE TABLE IF NOT EXISTS {schedules} (
	name            text COLLATE "C" PRIMARY KEY,
	handler         text COLLATE "C" NOT NULL DEFAULT '',
	spec            text COLLATE "C" NOT NULL DEFAULT '',
	description     text COLLATE "C" NOT NULL DEFAULT '',
	next_spec       text COLLATE "C" NOT NULL DEFAULT '',
	next_due_at     timestamptz,            -- NULL: none, or not computed yet
	-- When the schedule next needs a plan; NULL: never.
	plan_at         timestamptz GENERATED ALWAYS AS (CASE WHEN spec <> next_spec THEN '-infinity'::timestamptz
		ELSE next_due_at END) STORED,
	last_due_at     timestamptz,            -- the latest tick that was accounted for
	paused_at       timestamptz,            -- start of the latest pause, kept after its end
	paused_until    timestamptz,
	paused_by       text COLLATE "C",
	paused_note     text COLLATE "C",
	ticks_queued    bigint NOT NULL DEFAULT 0,
	ticks_coalesced bigint NOT NULL DEFAULT 0,
	ticks_skipped   bigint NOT NULL DEFAULT 0,
	ticks_paused    bigint NOT NULL DEFAULT 0,
	seen_at         timestamptz,            -- when a worker last registered it; NULL: never
	created_at      timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.1);

-- The handlers that workers have registered. The name '' stands for all handlers together. A claim
-- of limited runs first locks the rows of the limits.
CREATE TABLE IF NOT EXISTS {handlers} (
	name            text COLLATE "C" PRIMARY KEY,
	max_concurrency integer NOT NULL DEFAULT 0, -- set in code, for display; 0: any number
	max_per_partition integer NOT NULL DEFAULT 0, -- set in code, as are the next two
	rate            integer NOT NULL DEFAULT 0, -- starts within any per
	per             bigint NOT NULL DEFAULT 0,  -- µs
	starts          text COLLATE "C" NOT NULL DEFAULT '', -- starts that count towards a rate: see package startlog
	peers           text COLLATE "C" NOT NULL DEFAULT '', -- workers that share max_concurrency: see store.Peers
	override        integer,                    -- replaces max_concurrency; 0: no run starts
	override_by     text COLLATE "C" NOT NULL DEFAULT '',
	override_note   text COLLATE "C" NOT NULL DEFAULT '',
	paused_until    timestamptz,
	paused_by       text COLLATE "C",
	paused_note     text COLLATE "C",
	seen_at         timestamptz,                -- when a worker last registered it; NULL: never
	created_at      timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1);

-- The runs. A claim is identified by id, attempt (which only grows) and a random value, because a
-- restored copy of the database assigns the same numbers again. So a write for another claim
-- changes nothing. No index contains lease_until, and each page has room for new versions of its
-- rows, so that renewing a lease writes to no index (HOT).
CREATE TABLE IF NOT EXISTS {runs} (
	id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	handler       text COLLATE "C" NOT NULL,
	schedule      text COLLATE "C",             -- NULL: triggered by hand
	due_at        timestamptz,                  -- the tick
	backfill      boolean NOT NULL DEFAULT false, -- may wait while another run of its schedule waits
	state         text COLLATE "C" NOT NULL DEFAULT 'queued'
		CHECK (state IN ('queued', 'running', 'succeeded', 'dead', 'canceled')),
	priority      smallint NOT NULL DEFAULT 0 CHECK (priority BETWEEN -1 AND 1), -- -1: most urgent
	run_at        timestamptz NOT NULL,
	attempt       integer NOT NULL DEFAULT 0,   -- the latest attempt
	uncounted     integer NOT NULL DEFAULT 0,   -- attempts before a requeue, and attempts that were given back
	own_attempts  integer NOT NULL DEFAULT 0,   -- limit of this run; 0: the limit of the handler
	max_attempts  integer NOT NULL DEFAULT 0,   -- limit in effect since the latest claim; 0: any number
	crashes       integer NOT NULL DEFAULT 0,   -- attempts since a requeue whose leases were lost
	failing_since timestamptz,                  -- when the first failed attempt since a requeue began
	key           text COLLATE "C",             -- key of the trigger
	-- How long a second run of the handler with this key is refused. '' means forever. After the
	-- time in key_expires_at, the next trigger with the key takes it over.
	key_until     text COLLATE "C" NOT NULL DEFAULT '' CHECK (key_until IN ('', 'started', 'ended')),
	key_expires_at timestamptz,
	partition_key text COLLATE "C" NOT NULL DEFAULT '', -- its runs share the limit max_per_partition; '': no limit
	worker        text COLLATE "C",             -- worker of the latest attempt
	claim         bigint NOT NULL DEFAULT 0,    -- random value of the latest claim
	claimed_at    timestamptz,
	lease_until   timestamptz,
	canceled_by   text COLLATE "C",             -- not NULL: cancellation was requested
	canceled_note text COLLATE "C",
	nonce         uuid NOT NULL DEFAULT pg_catalog.gen_random_uuid(), -- unique across all databases
	payload       bytea,
	queued_by     text COLLATE "C" NOT NULL DEFAULT '',
	queued_note   text COLLATE "C" NOT NULL DEFAULT '',
	traceparent   text COLLATE "C",             -- trace of the trigger, in the W3C Trace Context format
	last_error    text COLLATE "C" NOT NULL DEFAULT '',
	created_at    timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	finished_at   timestamptz
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500,
	autovacuum_analyze_scale_factor = 0.02, autovacuum_analyze_threshold = 500);

-- The outcome of each attempt. Rows are only added, and are deleted with their run.
CREATE TABLE IF NOT EXISTS {attempts} (
	run_id      bigint NOT NULL REFERENCES {runs} (id) ON DELETE CASCADE,
	attempt     integer NOT NULL,
	worker      text COLLATE "C" NOT NULL,
	started_at  timestamptz NOT NULL,
	finished_at timestamptz NOT NULL,
	outcome     text COLLATE "C" NOT NULL,
	error       text COLLATE "C" NOT NULL,
	claim       bigint NOT NULL DEFAULT 0,
	PRIMARY KEY (run_id, attempt)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05);

-- name: indexes
-- Finds the schedules that need a plan and the next tick.
CREATE INDEX IF NOT EXISTS {schedules_plan} ON {schedules} (plan_at, name) WHERE plan_at IS NOT NULL;

-- Ensures that a tick has at most one run.
CREATE UNIQUE INDEX IF NOT EXISTS {runs_tick} ON {runs} (schedule, due_at) WHERE schedule IS NOT NULL;

-- Ensures that at most one run of a schedule waits, not counting runs that backfill or are retried.
CREATE UNIQUE INDEX IF NOT EXISTS {runs_waiting} ON {runs} (schedule)
	WHERE state = 'queued' AND attempt = 0 AND schedule IS NOT NULL AND NOT backfill;

CREATE UNIQUE INDEX IF NOT EXISTS {runs_key} ON {runs} (handler, key) WHERE key IS NOT NULL
	AND CASE key_until WHEN 'started' THEN state = 'queued' AND attempt = 0
		WHEN 'ended' THEN state IN ('queued', 'running') ELSE true END;

-- Finds due runs in the order in which they are claimed.
CREATE INDEX IF NOT EXISTS {runs_queued} ON {runs} (handler, priority, run_at, id) WHERE state = 'queued';

-- Finds the partitions of a handler and the due runs of each.
CREATE INDEX IF NOT EXISTS {runs_partition} ON {runs} (handler, partition_key, priority, run_at, id)
	WHERE state = 'queued';

CREATE INDEX IF NOT EXISTS {runs_running} ON {runs} (handler, partition_key) WHERE state = 'running';

-- Finds old runs and counts dead letters.
CREATE INDEX IF NOT EXISTS {runs_ended} ON {runs} (state, finished_at) INCLUDE (handler) WHERE finished_at IS NOT NULL;

-- Finds when the last run of a handler succeeded, and the outcomes of the last ones.
CREATE INDEX IF NOT EXISTS {runs_history} ON {runs} (handler, state, finished_at) WHERE finished_at IS NOT NULL;

-- Finds the runs of a handler that have failed and wait to be tried again.
CREATE INDEX IF NOT EXISTS {runs_retried} ON {runs} (handler, failing_since)
	WHERE state = 'queued' AND failing_since IS NOT NULL;
