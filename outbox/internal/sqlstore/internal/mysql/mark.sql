-- A row that another transaction has locked is passed over, and answered as locked. If that is
-- a Mark that was cut off, it has inserted an attempt of the row, and whoever reads that waits
-- for it: the statements after the first read only rows that the first has locked. It first looks,
-- without a lock, which rows are there: to lock one that was deleted locks the gap in its place,
-- which may be the one where producers append.
{bounded} SELECT /*+ SET_VAR(group_concat_max_len = 4194304) */ GROUP_CONCAT(m.seq) INTO @tickslot_marked
FROM (
	SELECT x.* FROM {results_as_rows} AS x STRAIGHT_JOIN {messages} AS e FORCE INDEX (PRIMARY) ON e.seq = x.seq
	LIMIT 18446744073709551615 -- makes a table of them
) AS x STRAIGHT_JOIN {messages} AS m FORCE INDEX (PRIMARY) ON m.seq = x.seq
WHERE m.message_id = UNHEX(x.id) AND m.attempts = x.attempts AND m.state = 'pending'
FOR UPDATE SKIP LOCKED;

{bounded} INSERT {hint} INTO {attempts} (message, attempt, at, took, node, outcome, error)
SELECT x.seq, x.attempts + 1, UTC_TIMESTAMP(6), x.took, x.node, x.outcome, x.error
FROM {results_as_rows} AS x WHERE FIND_IN_SET(x.seq, @tickslot_marked);

{bounded} UPDATE {hint} {results_as_rows} AS x
	STRAIGHT_JOIN {messages} AS m FORCE INDEX (PRIMARY) ON m.seq = x.seq
SET
	m.attempts = x.attempts + 1,
	m.tried = m.tried + 1,
	m.crashes = 0,
	-- Assigned first, because it needs the old next_attempt_at. MySQL does not promise this order.
	m.failing_since = CASE
		WHEN x.outcome = 'ok' THEN m.failing_since
		WHEN m.failing_since IS NULL OR m.failing_since > UTC_TIMESTAMP(6) - INTERVAL x.took MICROSECOND THEN
			UTC_TIMESTAMP(6) - INTERVAL x.took MICROSECOND -- later: the clock was ahead
		WHEN TIMESTAMPDIFF(MICROSECOND, m.next_attempt_at, UTC_TIMESTAMP(6)) - x.took > x.most_late THEN m.failing_since
			+ INTERVAL TIMESTAMPDIFF(MICROSECOND, m.next_attempt_at, UTC_TIMESTAMP(6)) - x.took MICROSECOND
		ELSE m.failing_since END,
	m.state = CASE x.outcome WHEN 'ok' THEN 'dispatched' WHEN 'transient' THEN 'pending' ELSE 'dead' END,
	m.next_attempt_at = CASE x.outcome WHEN 'transient' THEN UTC_TIMESTAMP(6) + INTERVAL x.retry_in MICROSECOND
		ELSE m.next_attempt_at END,
	m.finished_at = CASE x.outcome WHEN 'transient' THEN NULL ELSE UTC_TIMESTAMP(6) END,
	m.last_error = CASE x.outcome WHEN 'ok' THEN m.last_error ELSE x.error END
WHERE FIND_IN_SET(x.seq, @tickslot_marked);

{where}{bounded} SELECT {hint} m.message_id, a.message IS NULL
FROM {results_as_rows} AS x STRAIGHT_JOIN {messages} AS m FORCE INDEX (PRIMARY) ON m.seq = x.seq
	LEFT JOIN {attempts} AS a ON a.message = x.seq AND a.attempt = x.attempts + 1
WHERE m.message_id = UNHEX(x.id)
	AND (a.outcome = CAST(x.outcome AS BINARY) AND CAST(a.node AS BINARY) = CAST(x.node AS BINARY)
		OR a.message IS NULL AND m.attempts = x.attempts AND m.state = 'pending')
LIMIT 18446744073709551615;
