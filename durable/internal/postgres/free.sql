-- Locks a candidate, c, unless somebody else has it locked, or has claimed it since this statement
-- began; then it may also have failed, and wait for its next attempt. It is found by its id, as in
-- finish.sql.
SELECT r.id, coalesce(octet_length(r.payload), 0) AS bytes FROM {runs} AS r
WHERE r.id = c.id AND r.state || '' = 'queued' AND r.run_at <= now.at
FOR UPDATE SKIP LOCKED
