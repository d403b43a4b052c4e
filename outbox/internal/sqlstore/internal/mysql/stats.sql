{bounded} SELECT {hint}
	(SELECT COUNT(*) FROM (SELECT 1 FROM {messages} AS m FORCE INDEX (pending) WHERE m.state = 'pending'
		LIMIT {most}) AS p),
	(SELECT COUNT(*) FROM (SELECT 1 FROM {messages} AS m FORCE INDEX (finished) WHERE m.state = 'dead'
		LIMIT {most}) AS d),
	(SELECT TIMESTAMPDIFF(MICROSECOND, MIN(o.next_attempt_at), UTC_TIMESTAMP(6)) FROM (
		SELECT * FROM (SELECT m.next_attempt_at FROM {messages} AS m FORCE INDEX (pending)
			WHERE m.state = 'pending' AND m.seq < {inside} AND m.tried = 0
				AND {free}
			ORDER BY m.seq LIMIT {first}) AS f
		UNION ALL
		SELECT * FROM (SELECT m.next_attempt_at FROM {messages} AS m FORCE INDEX (backoff)
			WHERE m.retry_at <= UTC_TIMESTAMP(6) AND {again}
				AND {free}
			ORDER BY m.retry_at LIMIT {first}) AS r) AS o),
	(SELECT TIMESTAMPDIFF(MICROSECOND, MIN(o.since), UTC_TIMESTAMP(6)) FROM (
		SELECT * FROM (SELECT COALESCE(m.requeued_at, m.created_at) AS since
			FROM {messages} AS m FORCE INDEX (pending)
			WHERE m.state = 'pending' ORDER BY m.seq LIMIT {window}) AS f
		UNION ALL
		SELECT * FROM (SELECT m.created_at FROM {messages} AS m FORCE INDEX (pending)
			WHERE m.state = 'pending' AND m.seq > {last_requeued} ORDER BY m.seq LIMIT 1) AS r) AS o),
	{edge}, u.topic, COALESCE(u.n, 0)
FROM (SELECT 1 AS one) AS n LEFT JOIN (
	SELECT v.topic, (SELECT LEAST({most}, COUNT(*)) FROM {messages} AS m FORCE INDEX (topics)
		WHERE m.pending_topic = v.topic) AS n
	FROM ({unknown} ORDER BY t.pending_topic LIMIT {max_unknown}) AS v
) AS u ON 1 = 1
LIMIT 18446744073709551615
