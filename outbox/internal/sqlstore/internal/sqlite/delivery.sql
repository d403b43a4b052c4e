d.seq, d.message_id, d.topic, d.key, d.key_hash, d.payload, d.headers, d.attempts, d.attempts - d.tried,
	{now} - d.created_at
