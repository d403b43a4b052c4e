-- Up to ?4 runs that ended longer ago than ?1 (succeeded), ?2 (dead) or ?3 (canceled), if that is
-- not 0.
SELECT id FROM (
	SELECT id FROM {runs} WHERE ?1 > 0 AND state = 'succeeded' AND finished_at < {now} - ?1
	UNION ALL
	SELECT id FROM {runs} WHERE ?2 > 0 AND state = 'dead' AND finished_at < {now} - ?2
	UNION ALL
	SELECT id FROM {runs} WHERE ?3 > 0 AND state = 'canceled' AND finished_at < {now} - ?3)
LIMIT ?4
