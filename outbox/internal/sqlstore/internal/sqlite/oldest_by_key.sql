WITH RECURSIVE {unknown},
{page}
SELECT l.n, l.key, (
	SELECT coalesce({now} - min(m.next_attempt_at), 0)
	FROM page AS o CROSS JOIN {messages} AS m ON m.seq = o.seq WHERE {free})
FROM (SELECT count(*) AS n, coalesce(max(o.key), '') AS key FROM page AS o) AS l
