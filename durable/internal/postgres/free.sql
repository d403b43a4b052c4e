-- Locks a candidate, c, unless somebody else has it locked, or has claimed it since this statement
-- began.
SELECT r.id FROM {runs} AS r WHERE r.id = c.id AND r.state = 'queued' FOR UPDATE SKIP LOCKED
