SELECT name, max_concurrency, coalesce(override, -1), override_by, override_note,
	CASE WHEN paused_until > {now} THEN paused_until END, paused_by, paused_note, seen_at,
	(SELECT count(*) FROM {runs} WHERE state = 'queued' AND handler = h.name),
	(SELECT count(*) FROM {runs} WHERE state = 'running' AND handler = h.name),
	(SELECT count(*) FROM {runs} WHERE state = 'dead' AND handler = h.name)
FROM {handlers} AS h ORDER BY name
