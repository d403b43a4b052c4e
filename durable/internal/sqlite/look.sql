-- What a claim decides by, for each handler in the JSON array ?1: its override, or -1; whether it is
-- paused; how many of its runs are running; up to ?2 that are due at ?3, of each priority; and when the
-- next one is due that is not due at ?3.
SELECT wanted.value, coalesce(h.override, -1), coalesce(h.paused_until > ?3, 0),
	(SELECT count(*) FROM {runs} WHERE state = 'running' AND handler = wanted.value),
	(SELECT json_group_array(json_array(priority, run_at, id)) FROM (
		SELECT * FROM (SELECT priority, run_at, id FROM {runs} WHERE state = 'queued' AND handler = wanted.value
			AND priority = -1 AND run_at <= ?3 ORDER BY run_at, id LIMIT ?2)
		UNION ALL
		SELECT * FROM (SELECT priority, run_at, id FROM {runs} WHERE state = 'queued' AND handler = wanted.value
			AND priority = 0 AND run_at <= ?3 ORDER BY run_at, id LIMIT ?2)
		UNION ALL
		SELECT * FROM (SELECT priority, run_at, id FROM {runs} WHERE state = 'queued' AND handler = wanted.value
			AND priority = 1 AND run_at <= ?3 ORDER BY run_at, id LIMIT ?2))),
	(SELECT min(next) FROM (
		SELECT min(run_at) AS next FROM {runs} WHERE state = 'queued' AND handler = wanted.value AND priority = -1
			AND run_at > ?3
		UNION ALL
		SELECT min(run_at) FROM {runs} WHERE state = 'queued' AND handler = wanted.value AND priority = 0
			AND run_at > ?3
		UNION ALL
		SELECT min(run_at) FROM {runs} WHERE state = 'queued' AND handler = wanted.value AND priority = 1
			AND run_at > ?3))
FROM json_each(?1) AS wanted LEFT JOIN {handlers} AS h ON h.name = wanted.value
