-- Finds the newest events and runs of all. No index has a column that a later write to the row
-- changes, so that such a write updates no index (HOT).
CREATE INDEX IF NOT EXISTS {recent} ON {table} (sort, happened_at, id) WHERE happened_at IS NOT NULL;

-- Finds the newest runs of a timer.
CREATE INDEX IF NOT EXISTS {named} ON {table} (sort, lock_name, happened_at, id) WHERE happened_at IS NOT NULL;
