-- Finds the newest events and runs of all.
CREATE INDEX IF NOT EXISTS {recent_in} ON {name} (sort, happened_at, id) WHERE happened_at IS NOT NULL;

-- Finds the newest runs of a timer.
CREATE INDEX IF NOT EXISTS {named_in} ON {name} (sort, lock_name, happened_at, id) WHERE happened_at IS NOT NULL;
