WITH RECURSIVE {unknown}
SELECT {delivery}
FROM (SELECT f.*, sum(octet_length(f.payload)) OVER (ORDER BY f.seq) - octet_length(f.payload) AS ahead FROM (
	SELECT m.* FROM {messages} AS m
	WHERE m.state = 'pending' AND m.tried = 0 AND m.key = ''
		AND {mine}
	ORDER BY m.seq LIMIT {limit}
) AS f) AS d
WHERE d.ahead < {bytes}
ORDER BY d.seq
