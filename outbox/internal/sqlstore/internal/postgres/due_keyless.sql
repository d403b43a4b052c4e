WITH RECURSIVE {unknown}
SELECT {delivery}
FROM (
	SELECT m.* FROM {messages} AS m
	WHERE m.state = 'pending' AND m.tried = 0 AND m.key = ''
		AND {mine}
	ORDER BY m.seq LIMIT {limit}
) AS d
ORDER BY d.seq
