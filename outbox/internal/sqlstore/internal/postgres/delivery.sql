d.seq, pg_catalog.uuid_send(d.message_id), d.topic, d.key, d.key_hash, d.payload, d.headers, d.attempts,
	d.attempts - d.tried, d.crashes,
	d.requeued_at IS NOT NULL, (extract(epoch FROM (SELECT at FROM now) - d.created_at) * 1000000)::bigint,
	(extract(epoch FROM d.next_attempt_at - d.failing_since) * 1000000)::bigint
