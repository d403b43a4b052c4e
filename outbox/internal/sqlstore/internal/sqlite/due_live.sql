-- What was appended after all that is requeued, and has nothing of that before it in its key.
WITH RECURSIVE {unknown},
last AS MATERIALIZED (
	SELECT max(m.seq) AS seq FROM {messages} AS m WHERE m.state = 'pending' AND m.requeued_at IS NOT NULL
),
live AS MATERIALIZED (
	SELECT m.seq FROM {messages} AS m
	WHERE m.state = 'pending' AND m.seq > (SELECT l.seq FROM last AS l) ORDER BY m.seq LIMIT {window}
)
SELECT {delivery}
FROM (SELECT o.*, sum(length(o.payload)) OVER (ORDER BY o.seq) - length(o.payload) AS ahead FROM (
	SELECT m.* FROM live AS o CROSS JOIN {messages} AS m ON m.seq = o.seq
	WHERE m.tried = 0
		AND (m.key = '' OR NOT EXISTS (
			SELECT 1 FROM {messages} AS e
			WHERE e.state = 'pending' AND e.tried = 0 AND e.key = m.key AND e.seq <= (SELECT l.seq FROM last AS l)))
		AND {mine}
	ORDER BY m.seq LIMIT {limit}
) AS o) AS d
WHERE d.ahead < {bytes}
ORDER BY d.seq
