m.seq, m.message_id, m.topic, m.[key], m.key_hash, m.state, m.attempts,
	DATEDIFF_BIG(MICROSECOND, '1970-01-01', m.next_attempt_at), DATEDIFF_BIG(MICROSECOND, '1970-01-01', m.created_at),
	DATEDIFF_BIG(MICROSECOND, '1970-01-01', m.failing_since), DATEDIFF_BIG(MICROSECOND, '1970-01-01', m.finished_at),
	 m.last_error
