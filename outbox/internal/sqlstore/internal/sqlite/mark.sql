INSERT INTO {attempts} (message, attempt, at, took, node, outcome, error)
SELECT m.seq, m.attempts + 1, {now}, x.value ->> 'took', x.value ->> 'node', x.value ->> 'outcome',
	x.value ->> 'error'
FROM json_each({results}) AS x CROSS JOIN {messages} AS m ON m.seq = x.value ->> 'seq'
WHERE {padded_id} = x.value ->> 'id' AND m.attempts = x.value ->> 'attempts'
	AND m.state = 'pending'
ON CONFLICT (message, attempt) DO NOTHING;

UPDATE {messages} AS m SET
	attempts = m.attempts + 1,
	tried = m.tried + 1,
	crashes = 0,
	state = CASE x.outcome WHEN 'ok' THEN 'dispatched' WHEN 'transient' THEN 'pending' ELSE 'dead' END,
	next_attempt_at = CASE x.outcome WHEN 'transient' THEN {now} + x.retry_in ELSE m.next_attempt_at END,
	failing_since = CASE
		WHEN x.outcome = 'ok' THEN m.failing_since
		WHEN m.failing_since IS NULL OR m.failing_since > {now} - x.took THEN -- later: the clock was ahead
			{now} - x.took
		WHEN {now} - x.took > m.next_attempt_at + x.most_late THEN m.failing_since + {now} - x.took - m.next_attempt_at
		ELSE m.failing_since END,
	finished_at = CASE x.outcome WHEN 'transient' THEN NULL ELSE {now} END,
	last_error = CASE x.outcome WHEN 'ok' THEN m.last_error ELSE x.error END
FROM (
	SELECT x.value ->> 'id' AS id, x.value ->> 'seq' AS seq, x.value ->> 'attempts' AS attempts,
		x.value ->> 'outcome' AS outcome, x.value ->> 'retry_in' AS retry_in, x.value ->> 'error' AS error,
		x.value ->> 'took' AS took, x.value ->> 'most_late' AS most_late
	FROM json_each({results}) AS x
) AS x
WHERE m.seq = x.seq AND {padded_id} = x.id AND m.attempts = x.attempts AND m.state = 'pending';

DELETE FROM {attempts} WHERE (message, attempt) IN (
	SELECT m.seq, m.attempts - {last_attempts}
	FROM json_each({results}) AS x CROSS JOIN {messages} AS m ON m.seq = x.value ->> 'seq'
	WHERE m.attempts > {first_attempts} + {last_attempts});

SELECT m.message_id, 0 FROM json_each({results}) AS x CROSS JOIN {messages} AS m ON m.seq = x.value ->> 'seq'
	CROSS JOIN {attempts} AS a ON a.message = m.seq AND a.attempt = (x.value ->> 'attempts') + 1
WHERE {padded_id} = x.value ->> 'id' AND a.outcome = x.value ->> 'outcome'
	AND a.node = x.value ->> 'node';
