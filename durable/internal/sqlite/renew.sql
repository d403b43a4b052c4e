-- ?1 worker, ?2 [[id, attempt, claim], …], ?3 how long the lease is
UPDATE {runs} SET lease_until = {now} + ?3
FROM (SELECT value ->> 0 AS id, value ->> 1 AS attempt, value ->> 2 AS claim FROM json_each(?2)) AS mine
WHERE {runs_name}.id = mine.id AND {runs_name}.attempt = mine.attempt AND {runs_name}.claim = mine.claim
	AND state = 'running' AND worker = ?1
RETURNING id, attempt, {runs_name}.claim, canceled_by IS NOT NULL, canceled_by, canceled_note
