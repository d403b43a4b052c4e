{bounded} SELECT {hint} l.shards, l.epoch,
	(SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), m.retry_at)
		FROM {messages} AS m FORCE INDEX (backoff)
		WHERE m.retry_at > UTC_TIMESTAMP(6) AND {again}
			AND {mine}
		ORDER BY m.retry_at LIMIT 1),
	{edge}, {delivery}
FROM {layout} AS l
	LEFT JOIN (SELECT b.seq FROM (
		SELECT w.seq, SUM(LENGTH(p.payload)) OVER (ORDER BY w.seq) - LENGTH(p.payload) AS ahead FROM (
		SELECT * FROM (SELECT m.seq FROM {messages} AS m FORCE INDEX (pending)
			WHERE m.state = 'pending' AND m.seq < {inside} AND m.tried = 0
				AND {mine}
			ORDER BY m.seq LIMIT {limit}) AS f
		UNION ALL
		SELECT * FROM (SELECT m.seq FROM {messages} AS m FORCE INDEX (backoff)
			WHERE m.retry_at <= UTC_TIMESTAMP(6) AND {again}
				AND {mine}
			ORDER BY m.retry_at LIMIT {limit}) AS r
		ORDER BY seq LIMIT {limit}
		) AS w STRAIGHT_JOIN {messages} AS p ON p.seq = w.seq) AS b WHERE b.ahead < {bytes}
	) AS o ON 1 = 1
	LEFT JOIN {messages} AS d ON d.seq = o.seq
WHERE l.id = 1
ORDER BY o.seq
LIMIT 18446744073709551615 -- all, whatever sql_select_limit is
