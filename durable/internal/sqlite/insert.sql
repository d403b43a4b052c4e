-- ?5 when it is due, or nothing: after ?6. Returns no row if an index refuses it.
INSERT INTO {runs} (handler, schedule, due_at, backfill, run_at, priority, own_max_attempts, max_attempts, key,
	payload, by, note, traceparent, created_at)
VALUES (?1, ?2, ?3, ?4, coalesce(?5, {now} + ?6), ?7, ?8, ?8, ?9, ?10, ?11, ?12, ?13, {now})
ON CONFLICT DO NOTHING RETURNING id
