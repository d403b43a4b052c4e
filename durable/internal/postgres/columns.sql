r.id, r.attempt, r.claim, r.handler, r.schedule, r.due_at, r.backfill, r.state, r.priority, r.run_at,
	CASE r.max_attempts WHEN 0 THEN 0 ELSE r.uncounted + r.max_attempts END, r.uncounted, r.failing_since, r.key,
	r.nonce::text,
	coalesce(length(r.payload), 0), r.queued_by, r.queued_note, r.traceparent,
	r.canceled_by, r.canceled_note, r.worker, r.claimed_at, r.lease_until, r.last_error,
	r.created_at, r.finished_at
