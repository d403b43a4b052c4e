-- Finds the schedules that need a plan, and the next tick.
CREATE INDEX IF NOT EXISTS {schedules_plan} ON {schedules} (plan_at, name) WHERE plan_at IS NOT NULL;

-- A tick has one run.
CREATE UNIQUE INDEX IF NOT EXISTS {runs_tick} ON {runs} (schedule, due_at) WHERE schedule IS NOT NULL;

-- One run of a schedule waits, beside those that backfill or are tried again.
CREATE UNIQUE INDEX IF NOT EXISTS {runs_waiting} ON {runs} (schedule)
	WHERE state = 'queued' AND attempt = 0 AND schedule IS NOT NULL AND NOT backfill;

CREATE UNIQUE INDEX IF NOT EXISTS {runs_key} ON {runs} (handler, key) WHERE key IS NOT NULL;

-- Finds what is due, in the order in which it is claimed.
CREATE INDEX IF NOT EXISTS {runs_queued} ON {runs} (handler, priority, run_at, id) WHERE state = 'queued';

CREATE INDEX IF NOT EXISTS {runs_running} ON {runs} (handler) WHERE state = 'running';

-- Finds what is old, and counts dead letters.
CREATE INDEX IF NOT EXISTS {runs_ended} ON {runs} (state, finished_at) INCLUDE (handler) WHERE finished_at IS NOT NULL;
