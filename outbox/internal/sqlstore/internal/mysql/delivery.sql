d.seq, d.message_id, d.topic, d.`key`, d.key_hash, d.payload, CAST(d.headers AS BINARY), d.attempts,
	d.attempts - d.tried, TIMESTAMPDIFF(MICROSECOND, d.created_at, UTC_TIMESTAMP(6))
