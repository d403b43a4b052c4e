-- ?1 who, ?2 why, ?3 the runs, as JSON.
-- A tick that never began must not be in the way of the one of its schedule that
-- waits, so it counts as one that is made up for.
UPDATE {runs} SET state = 'queued', run_at = {now}, finished_at = NULL, by = ?1, note = ?2,
	max_attempts = CASE max_attempts WHEN 0 THEN 0 ELSE max_attempts - attempts_before + attempt END,
	attempts_before = attempt, crashes = 0, failing_since = NULL,
	backfill = backfill OR attempt = 0 AND schedule IS NOT NULL, canceled_by = NULL, canceled_note = NULL
WHERE id IN (SELECT value FROM json_each(?3))
