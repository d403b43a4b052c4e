WITH RECURSIVE {unknown},
{page}
SELECT l.n, l.key, (
	SELECT coalesce((extract(epoch FROM (SELECT at FROM now) - min(m.next_attempt_at)) * 1000000)::bigint, 0)
	FROM page AS o JOIN {messages} AS m ON m.seq = o.seq WHERE {free})
FROM (SELECT count(*) AS n, coalesce(max(o.key), '') AS key FROM page AS o) AS l
