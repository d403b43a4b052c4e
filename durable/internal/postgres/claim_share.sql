-- Waits until no override is being set, and has those wait that are, until this transaction ends. A
-- limit that is set where there was none has no row that a claim would have locked before. $1: the
-- number of the lock, which belongs to the tables.
SELECT pg_advisory_xact_lock_shared($1::bigint)
