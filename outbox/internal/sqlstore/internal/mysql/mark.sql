{bounded} INSERT {hint} INTO {attempts} (message, attempt, at, took, node, outcome, error)
SELECT m.seq, m.attempts + 1, UTC_TIMESTAMP(6), x.took, x.node, x.outcome, x.error
FROM {results_as_rows} AS x STRAIGHT_JOIN {messages} AS m ON m.seq = x.seq
WHERE m.attempts = x.attempts AND m.state = 'pending'
FOR UPDATE;

{bounded} UPDATE {hint} {results_as_rows} AS x STRAIGHT_JOIN {messages} AS m ON m.seq = x.seq SET
	m.attempts = x.attempts + 1,
	m.tried = m.tried + 1,
	m.state = CASE x.outcome WHEN 'ok' THEN 'dispatched' WHEN 'transient' THEN 'pending' ELSE 'dead' END,
	m.next_attempt_at = CASE x.outcome WHEN 'transient' THEN UTC_TIMESTAMP(6) + INTERVAL x.retry_in MICROSECOND
		ELSE m.next_attempt_at END,
	m.finished_at = CASE x.outcome WHEN 'transient' THEN NULL ELSE UTC_TIMESTAMP(6) END,
	m.last_error = CASE x.outcome WHEN 'ok' THEN m.last_error ELSE x.error END
WHERE m.attempts = x.attempts AND m.state = 'pending';

{bounded} SELECT {hint} a.message
FROM {results_as_rows} AS x STRAIGHT_JOIN {attempts} AS a ON a.message = x.seq AND a.attempt = x.attempts + 1
WHERE a.outcome = CAST(x.outcome AS BINARY) AND CAST(a.node AS BINARY) = CAST(x.node AS BINARY)
LIMIT 18446744073709551615;
