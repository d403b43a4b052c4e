m.seq, m.message_id, m.topic, m.key, m.key_hash, m.state, m.attempts, m.next_attempt_at, m.created_at, m.failing_since,
	m.finished_at, m.last_error
