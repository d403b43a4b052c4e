m.seq, m.message_id, m.topic, m.`key`, m.key_hash, m.state, m.attempts,
	TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', m.next_attempt_at),
	TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', m.created_at),
	TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', m.failing_since),
	TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', m.finished_at), CAST(m.last_error AS BINARY)
