-- ?1: how many at most, ?2: after how many lost leases a run is dead; 0: any number.
SELECT id, attempt, claim, max_attempts, crashes + 1, handler, schedule, worker,
	coalesce(attempt >= nullif(max_attempts, 0), 0) OR coalesce(crashes + 1 >= nullif(?2, 0), 0),
	canceled_by IS NOT NULL
FROM {runs}
WHERE state = 'running' AND lease_until < {now} ORDER BY lease_until, id LIMIT ?1
