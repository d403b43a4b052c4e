d.seq, d.message_id, d.topic, d.`key`, d.key_hash, d.payload, CAST(d.headers AS BINARY), d.attempts,
	d.attempts - d.tried, d.crashes,
	d.requeued_at IS NOT NULL, TIMESTAMPDIFF(MICROSECOND, d.created_at, UTC_TIMESTAMP(6)),
	TIMESTAMPDIFF(MICROSECOND, d.failing_since, d.next_attempt_at)
