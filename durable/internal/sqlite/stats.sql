-- ?1 is the present time.
SELECT handler, sum(queued), sum(running), sum(dead), min(oldest), max(seen_at), max(paused) FROM (
	SELECT handler, count(*) AS queued, 0 AS running, 0 AS dead,
		min(CASE WHEN run_at <= ?1 THEN run_at END) AS oldest, NULL AS seen_at, 0 AS paused
	FROM {runs} WHERE state = 'queued' GROUP BY handler
	UNION ALL
	SELECT handler, 0, count(*), 0, NULL, NULL, 0 FROM {runs} WHERE state = 'running' GROUP BY handler
	UNION ALL
	SELECT handler, 0, 0, count(*), NULL, NULL, 0 FROM {runs} WHERE state = 'dead' GROUP BY handler
	UNION ALL
	SELECT name, 0, 0, 0, NULL, seen_at, coalesce(paused_until > ?1, 0) FROM {handlers} WHERE name <> '')
GROUP BY handler ORDER BY handler
