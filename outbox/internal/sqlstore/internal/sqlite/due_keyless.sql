WITH RECURSIVE {unknown}
SELECT {delivery}
FROM (SELECT o.*, sum(length(o.payload)) OVER (ORDER BY o.seq) - length(o.payload) AS ahead FROM (
	SELECT m.* FROM {messages} AS m
	WHERE m.state = 'pending' AND m.tried = 0 AND m.key = ''
		AND {mine}
	ORDER BY m.seq LIMIT {limit}
) AS o) AS d
WHERE d.ahead < {bytes}
ORDER BY d.seq
