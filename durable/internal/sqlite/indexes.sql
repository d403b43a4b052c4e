-- Finds the schedules that need a plan, and the next tick.
CREATE INDEX IF NOT EXISTS {plan_in} ON {schedules_name} (plan_at, name);

-- A tick has one run.
CREATE UNIQUE INDEX IF NOT EXISTS {tick_in} ON {runs_name} (schedule, due_at) WHERE schedule IS NOT NULL;

-- One run of a schedule waits for its first attempt.
CREATE UNIQUE INDEX IF NOT EXISTS {waits_in} ON {runs_name} (schedule)
	WHERE state = 'queued' AND attempt = 0 AND schedule IS NOT NULL AND NOT backfill;

CREATE UNIQUE INDEX IF NOT EXISTS {key_in} ON {runs_name} (handler, key) WHERE key IS NOT NULL;

-- Finds what to claim, in the order in which it is claimed. Here and below, state is in the index
-- so that SQLite need not look into the table for it.
CREATE INDEX IF NOT EXISTS {claim_in} ON {runs_name} (handler, priority, run_at, id, state)
	WHERE state = 'queued';

-- Counts what is running. A renewal does not change it, because it leaves out lease_until.
CREATE INDEX IF NOT EXISTS {running_in} ON {runs_name} (handler, state) WHERE state = 'running';

-- Counts and lists dead letters.
CREATE INDEX IF NOT EXISTS {dead_in} ON {runs_name} (handler, state) WHERE state = 'dead';

-- Finds what is too old.
CREATE INDEX IF NOT EXISTS {ended_in} ON {runs_name} (state, finished_at) WHERE finished_at IS NOT NULL;
