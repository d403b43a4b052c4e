-- What a claim decides by, for each handler in the JSON array ?1 and each priority: the override,
-- or -1; whether the handler is paused; how many of its runs are running; up to ?2 that are due at
-- ?3; and when the next one is due that is not due then.
SELECT wanted.value, coalesce(h.override, -1), coalesce(h.paused_until > ?3, 0),
	(SELECT count(*) FROM {runs} WHERE state = 'running' AND handler = wanted.value),
	(SELECT json_group_array(json_array(p.column1, run_at, id)) FROM (
		SELECT run_at, id FROM {runs} WHERE state = 'queued' AND handler = wanted.value AND priority = p.column1
			AND run_at <= ?3 ORDER BY run_at, id LIMIT ?2)),
	(SELECT min(run_at) FROM {runs} WHERE state = 'queued' AND handler = wanted.value AND priority = p.column1
		AND run_at > ?3)
FROM json_each(?1) AS wanted, (VALUES (-1), (0), (1)) AS p LEFT JOIN {handlers} AS h ON h.name = wanted.value
