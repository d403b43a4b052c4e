WITH RECURSIVE {unknown},
due AS MATERIALIZED (
	SELECT m.* FROM {messages} AS m
	WHERE m.state = 'pending' AND m.next_attempt_at <= (SELECT at FROM now)
		AND {mine}
	ORDER BY m.seq LIMIT {limit}
)
SELECT l.shards, l.epoch,
	(SELECT (extract(epoch FROM m.next_attempt_at - (SELECT at FROM now)) * 1000000)::bigint FROM {messages} AS m
		WHERE m.state = 'pending' AND m.attempts > 0 AND m.next_attempt_at > (SELECT at FROM now)
			AND {mine}
		ORDER BY m.next_attempt_at LIMIT 1),
	d.seq, pg_catalog.uuid_send(d.message_id), d.topic, d.key, d.key_hash, d.payload, d.headers, d.attempts,
	d.budget_from, (extract(epoch FROM (SELECT at FROM now) - d.created_at) * 1000000)::bigint
FROM {layout} AS l LEFT JOIN due AS d ON true
WHERE l.id = 1
ORDER BY d.seq
