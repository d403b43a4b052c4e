INSERT INTO {attempts} (message, attempt, at, took, node, outcome, error)
SELECT m.seq, m.attempts + 1, {now}, x.value ->> 'took', x.value ->> 'node', x.value ->> 'outcome',
	x.value ->> 'error'
FROM json_each({results}) AS x CROSS JOIN {messages} AS m ON m.seq = x.value ->> 'seq'
WHERE m.attempts = x.value ->> 'attempts' AND m.state = 'pending'
ON CONFLICT (message, attempt) DO NOTHING;

UPDATE {messages} AS m SET
	attempts = m.attempts + 1,
	tried = m.tried + 1,
	state = CASE x.outcome WHEN 'ok' THEN 'dispatched' WHEN 'transient' THEN 'pending' ELSE 'dead' END,
	next_attempt_at = CASE x.outcome WHEN 'transient' THEN {now} + x.retry_in ELSE m.next_attempt_at END,
	finished_at = CASE x.outcome WHEN 'transient' THEN NULL ELSE {now} END,
	last_error = CASE x.outcome WHEN 'ok' THEN m.last_error ELSE x.error END
FROM (
	SELECT x.value ->> 'seq' AS seq, x.value ->> 'attempts' AS attempts, x.value ->> 'outcome' AS outcome,
		x.value ->> 'retry_in' AS retry_in, x.value ->> 'error' AS error
	FROM json_each({results}) AS x
) AS x
WHERE m.seq = x.seq AND m.attempts = x.attempts AND m.state = 'pending';

SELECT a.message FROM json_each({results}) AS x CROSS JOIN {attempts} AS a
	ON a.message = x.value ->> 'seq' AND a.attempt = (x.value ->> 'attempts') + 1
WHERE a.outcome = x.value ->> 'outcome' AND a.node = x.value ->> 'node';
