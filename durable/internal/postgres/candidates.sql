-- The runs of a handler, l, that are due, the most urgent first. Each priority has its range of an
-- index. Somebody may have some of them locked, so there are $7 more than are wanted.
SELECT r.id, r.run_at, p.priority FROM {priorities}, LATERAL (
	SELECT q.id, q.run_at FROM {runs} AS q
	WHERE q.state = 'queued' AND q.handler = l.name COLLATE "C" AND q.priority = p.priority AND q.run_at <= now.at
	ORDER BY q.run_at, q.id
	LIMIT least(l.room, wanted.runs) + $7::bigint
) AS r
ORDER BY p.priority, r.run_at, r.id
