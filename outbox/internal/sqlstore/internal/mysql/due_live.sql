-- What was appended after all that is requeued, and has nothing of that before it in its key.
{bounded} SELECT {hint} {delivery}
FROM (SELECT b.seq FROM (
	SELECT w.seq, SUM(LENGTH(p.payload)) OVER (ORDER BY w.seq) - LENGTH(p.payload) AS ahead FROM (
	SELECT m.seq FROM (
		SELECT x.seq FROM {messages} AS x FORCE INDEX (pending)
		WHERE x.state = 'pending' AND x.seq > {last_requeued} ORDER BY x.seq LIMIT {window}
	) AS o STRAIGHT_JOIN {messages} AS m ON m.seq = o.seq
	WHERE m.tried = 0
		AND (m.`key` = '' OR {last_requeued} < COALESCE((
			SELECT e.seq FROM {messages} AS e FORCE INDEX (fresh) WHERE e.fresh_key = m.`key`
			ORDER BY e.seq LIMIT 1), m.seq))
		AND {mine}
	ORDER BY m.seq LIMIT {limit}
	) AS w STRAIGHT_JOIN {messages} AS p ON p.seq = w.seq) AS b WHERE b.ahead < {bytes}
) AS o STRAIGHT_JOIN {messages} AS d ON d.seq = o.seq
ORDER BY d.seq
LIMIT 18446744073709551615
