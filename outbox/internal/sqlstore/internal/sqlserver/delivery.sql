d.seq, d.message_id, d.topic, d.[key], d.key_hash, d.payload, d.headers, d.attempts, d.attempts - d.tried,
	d.crashes, CASE WHEN d.requeued_at IS NULL THEN 0 ELSE 1 END, DATEDIFF_BIG(MICROSECOND, d.created_at, @now),
	DATEDIFF_BIG(MICROSECOND, d.failing_since, d.next_attempt_at)
