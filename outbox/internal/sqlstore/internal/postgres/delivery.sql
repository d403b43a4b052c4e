d.seq, pg_catalog.uuid_send(d.message_id), d.topic, d.key, d.key_hash, d.payload, d.headers, d.attempts,
	d.attempts - d.tried, (extract(epoch FROM (SELECT at FROM now) - d.created_at) * 1000000)::bigint
