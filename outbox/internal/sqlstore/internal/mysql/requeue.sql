{bounded} UPDATE {hint} {messages} AS m SET m.state = 'pending', m.tried = 0, m.crashes = 0,
	m.next_attempt_at = UTC_TIMESTAMP(6), m.requeued_at = UTC_TIMESTAMP(6), m.failing_since = NULL,
	m.finished_at = NULL, m.note = {note}
WHERE m.state = 'dead' AND ({older} = 0 OR m.created_at >= UTC_TIMESTAMP(6) - INTERVAL {older} MICROSECOND){where};

-- What is left is too old.
SELECT ROW_COUNT(), (SELECT COUNT(*) FROM {messages} AS m WHERE m.state = 'dead'{where});
