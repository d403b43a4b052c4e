-- Finds the slot that ends first.
CREATE INDEX IF NOT EXISTS {ends_in} ON {name} (resource_name, expires_at, slot) WHERE slot >= 0;

-- Finds the grant of an attempt, when a request is repeated.
CREATE INDEX IF NOT EXISTS {holders_in} ON {name} (lock_id) WHERE lock_id IS NOT NULL;
