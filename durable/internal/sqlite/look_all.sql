-- The time, the override of MaxActive, or -1, and how many runs are running.
SELECT {now}, coalesce((SELECT override FROM {handlers} WHERE name = ''), -1),
	(SELECT count(*) FROM {runs} WHERE state = 'running')
