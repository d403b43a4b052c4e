{bounded} SELECT {hint} l.shards, l.epoch,
	(SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), m.next_attempt_at)
		FROM {messages} AS m FORCE INDEX (backoff)
		WHERE m.state = 'pending' AND m.attempts > 0 AND m.next_attempt_at > UTC_TIMESTAMP(6)
			AND {mine}
		ORDER BY m.next_attempt_at LIMIT 1),
	d.seq, d.message_id, d.topic, d.`key`, d.key_hash, d.payload, CAST(d.headers AS BINARY), d.attempts, d.budget_from,
	TIMESTAMPDIFF(MICROSECOND, d.created_at, UTC_TIMESTAMP(6))
FROM {layout} AS l
	LEFT JOIN (
		SELECT m.seq FROM {messages} AS m FORCE INDEX (pending)
		WHERE m.state = 'pending' AND m.next_attempt_at <= UTC_TIMESTAMP(6)
			AND {mine}
		ORDER BY m.seq LIMIT {limit}
	) AS o ON 1 = 1
	LEFT JOIN {messages} AS d ON d.seq = o.seq
WHERE l.id = 1
ORDER BY o.seq
LIMIT 18446744073709551615 -- all, whatever sql_select_limit is
