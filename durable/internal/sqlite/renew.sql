-- ?1 worker, ?2 [[id, attempt], …], ?3 how long the lease is
UPDATE {runs} SET lease_until = {now} + ?3
FROM (SELECT value ->> 0 AS id, value ->> 1 AS attempt FROM json_each(?2)) AS mine
WHERE {runs_name}.id = mine.id AND {runs_name}.attempt = mine.attempt AND state = 'running' AND worker = ?1
RETURNING id, attempt, canceled_by IS NOT NULL, canceled_by, canceled_note
