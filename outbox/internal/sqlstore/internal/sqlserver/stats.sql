{begin}
{unknown}
{edge}
SELECT
	(SELECT COUNT_BIG(*) FROM (SELECT TOP ({most}) m.seq FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
		WHERE m.state = 'pending') AS p),
	(SELECT COUNT_BIG(*) FROM (SELECT TOP ({most}) m.seq FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
		WHERE m.state = 'dead' AND m.finished_at IS NOT NULL) AS d),
	(SELECT DATEDIFF_BIG(MICROSECOND, MIN(o.next_attempt_at), @now) FROM (
		SELECT f.next_attempt_at FROM (
			SELECT TOP ({first}) m.next_attempt_at FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
			WHERE m.state = 'pending' AND {inside} AND m.tried = 0
				AND {free}
			ORDER BY m.seq) AS f
		UNION ALL
		SELECT r.next_attempt_at FROM (
			SELECT TOP ({first}) m.next_attempt_at FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
			WHERE {again} AND m.next_attempt_at <= @now
				AND {free}
			ORDER BY m.next_attempt_at) AS r) AS o),
	(SELECT DATEDIFF_BIG(MICROSECOND, MIN(o.since), @now) FROM (
		SELECT f.since FROM (
			SELECT TOP ({window}) COALESCE(m.requeued_at, m.created_at) AS since
			FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
			WHERE m.state = 'pending' ORDER BY m.seq) AS f
		UNION ALL
		SELECT r.created_at FROM (
			SELECT TOP (1) m.created_at FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
			WHERE m.state = 'pending' AND m.seq > (
				SELECT MAX(q.seq) FROM {messages} AS q WITH (READCOMMITTEDLOCK, READPAST)
				WHERE q.state = 'pending' AND q.requeued_at IS NOT NULL)
			ORDER BY m.seq) AS r) AS o),
	@edge, u.topic,
	(SELECT COUNT_BIG(*) FROM (SELECT TOP ({most}) m.seq FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
		WHERE m.state = 'pending' AND m.topic = u.topic) AS w)
FROM (SELECT 1 AS one) AS n
	LEFT JOIN (SELECT TOP ({max_unknown}) u.topic FROM @unknown AS u ORDER BY u.topic) AS u ON 1 = 1;
