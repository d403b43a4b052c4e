-- Finds the slot that ends first.
CREATE INDEX IF NOT EXISTS {ends} ON {table} (resource_name, expires_at) WHERE slot >= 0;

-- Finds the grant of an attempt, when a request is repeated.
CREATE INDEX IF NOT EXISTS {holders} ON {table} (lock_id) WHERE lock_id IS NOT NULL;
