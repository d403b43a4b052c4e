-- Ends the attempt ?2 of the run ?1 by the worker ?3, if it goes on: ?4 how, ?5 its error, ?6 how
-- long it took, or nothing: until now; ?7 the value of its claim.
INSERT INTO {attempts} (run_id, attempt, worker, started_at, finished_at, outcome, error, claim)
SELECT id, attempt, worker, claimed_at, min({now}, claimed_at + coalesce(?6, {now} - claimed_at)), ?4, ?5, claim
FROM {runs} WHERE id = ?1 AND attempt = ?2 AND worker = ?3 AND claim = ?7 AND state = 'running'
