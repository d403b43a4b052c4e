-- What becomes of the run ?1: ?2 its state, ?3 an error or '', ?4 in how long it is due again, ?5
-- how many more attempts it has because this one does not count, ?6 whether it has failed, ?7 how
-- many leases were lost by it. One that somebody has canceled is
-- not queued again.
UPDATE {runs} SET
	state = CASE WHEN ?2 = 'queued' AND canceled_by IS NOT NULL THEN 'canceled' ELSE ?2 END,
	finished_at = CASE WHEN ?2 = 'queued' AND canceled_by IS NULL THEN NULL ELSE {now} END,
	run_at = CASE WHEN ?2 = 'queued' THEN {now} + ?4 ELSE run_at END,
	attempts_before = attempts_before + ?5, max_attempts = CASE max_attempts WHEN 0 THEN 0 ELSE max_attempts + ?5 END,
	failing_since = CASE WHEN ?6 THEN coalesce(failing_since, claimed_at) ELSE failing_since END,
	crashes = crashes + ?7,
	last_error = CASE WHEN ?3 <> '' THEN ?3 ELSE last_error END, lease_until = NULL
WHERE id = ?1
