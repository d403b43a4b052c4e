-- A run that is queued again may wait beside others of its schedule.
UPDATE {runs} AS r SET state = 'queued', backfill = r.schedule IS NOT NULL, run_at = clock_timestamp(),
	uncounted = r.attempt, canceled_by = NULL, canceled_note = NULL, queued_by = $1::text, queued_note = $2::text,
	finished_at = NULL
WHERE r.state IN ('dead', 'canceled') AND r.finished_at IS NOT NULL
