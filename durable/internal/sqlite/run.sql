id, attempt, claim, handler, schedule, due_at, backfill, state, priority, run_at, max_attempts, attempts_before,
	failing_since, key, nonce, coalesce(length(payload), 0), by, note, traceparent, canceled_by,
	canceled_note, worker, claimed_at, lease_until, last_error,
	created_at, finished_at
