d.seq, d.message_id, d.topic, d.key, d.key_hash, d.payload, d.headers, d.attempts, d.attempts - d.tried,
	d.crashes, d.requeued_at IS NOT NULL, {now} - d.created_at, d.next_attempt_at - d.failing_since
