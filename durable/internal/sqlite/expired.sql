SELECT id, attempt, max_attempts, handler, schedule, worker, attempt >= max_attempts, canceled_by IS NOT NULL
FROM {runs}
WHERE state = 'running' AND lease_until < {now} ORDER BY lease_until, id LIMIT ?1
