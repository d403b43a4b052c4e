WITH RECURSIVE {unknown},
due AS MATERIALIZED (
	SELECT m.seq FROM {messages} AS m
	WHERE m.state = 'pending' AND m.next_attempt_at <= {now}
		AND {mine}
	ORDER BY m.seq LIMIT {limit}
)
SELECT l.shards, l.epoch,
	(SELECT m.next_attempt_at - {now} FROM {messages} AS m
		WHERE m.state = 'pending' AND m.attempts > 0 AND m.next_attempt_at > {now}
			AND {mine}
		ORDER BY m.next_attempt_at LIMIT 1),
	d.seq, d.message_id, d.topic, d.key, d.key_hash, d.payload, d.headers, d.attempts, d.budget_from,
	{now} - d.created_at
FROM {layout} AS l LEFT JOIN due AS o ON true LEFT JOIN {messages} AS d ON d.seq = o.seq
WHERE l.id = 1
ORDER BY o.seq
