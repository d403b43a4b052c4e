m.seq, pg_catalog.uuid_send(m.message_id), m.topic, m.key, m.key_hash, m.state, m.attempts,
	(extract(epoch FROM m.next_attempt_at) * 1000000)::bigint, (extract(epoch FROM m.created_at) * 1000000)::bigint,
	(extract(epoch FROM m.failing_since) * 1000000)::bigint,
	(extract(epoch FROM m.finished_at) * 1000000)::bigint, m.last_error
