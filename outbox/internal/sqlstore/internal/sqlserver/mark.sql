{begin}
DECLARE @results TABLE (id binary(16), seq bigint, attempts int, outcome varchar(10) COLLATE Latin1_General_BIN2,
	retry_in bigint, took bigint, node nvarchar(1000), error nvarchar(max), most_late bigint, began datetime2(6));
INSERT INTO @results
SELECT CONVERT(binary(16), x.id, 2), x.seq, x.attempts, x.outcome, x.retry_in, x.took, x.node, x.error, x.most_late,
	DATEADD(microsecond, -(x.took % 1000000), DATEADD(second, -(x.took / 1000000), @now))
FROM OPENJSON({results}) WITH (id char(32), seq bigint, attempts int, outcome varchar(10), retry_in bigint,
	took bigint, node nvarchar(1000), error nvarchar(max), most_late bigint) AS x;
DECLARE @written TABLE (seq bigint, attempts int);
BEGIN TRANSACTION;
-- A row that is locked is passed over, and answered as such.
UPDATE m SET
	attempts = x.attempts + 1,
	tried = m.tried + 1,
	crashes = 0,
	state = CASE x.outcome WHEN 'ok' THEN 'dispatched' WHEN 'transient' THEN 'pending' ELSE 'dead' END,
	next_attempt_at = CASE x.outcome WHEN 'transient' THEN
		DATEADD(microsecond, x.retry_in % 1000000, DATEADD(second, x.retry_in / 1000000, @now)) -- it takes an int
		ELSE m.next_attempt_at END,
	failing_since = CASE
		WHEN x.outcome = 'ok' THEN m.failing_since
		WHEN m.failing_since IS NULL OR m.failing_since > x.began THEN x.began -- later: the clock was ahead
		WHEN DATEDIFF_BIG(MICROSECOND, m.next_attempt_at, x.began) > x.most_late THEN
			DATEADD(microsecond, DATEDIFF_BIG(MICROSECOND, m.next_attempt_at, x.began) % 1000000,
				DATEADD(second, DATEDIFF_BIG(MICROSECOND, m.next_attempt_at, x.began) / 1000000, m.failing_since))
		ELSE m.failing_since END,
	finished_at = CASE x.outcome WHEN 'transient' THEN NULL ELSE @now END,
	last_error = CASE x.outcome WHEN 'ok' THEN m.last_error ELSE x.error END
OUTPUT inserted.seq, inserted.attempts INTO @written (seq, attempts)
FROM {messages} AS m WITH (UPDLOCK, ROWLOCK, READCOMMITTEDLOCK, READPAST)
	JOIN @results AS x ON x.seq = m.seq AND x.id = m.message_id AND x.attempts = m.attempts
WHERE m.state = 'pending';
INSERT INTO {attempts} (message, attempt, at, took, node, outcome, error)
SELECT w.seq, w.attempts, @now, x.took, x.node, x.outcome, x.error
FROM @written AS w JOIN @results AS x ON x.seq = w.seq AND x.attempts + 1 = w.attempts;
DELETE a FROM {attempts} AS a JOIN @written AS w
	ON a.message = w.seq AND a.attempt > {first_attempts} AND a.attempt <= w.attempts - {last_attempts};
COMMIT TRANSACTION;
SELECT x.id, CASE WHEN a.message IS NULL THEN 1 ELSE 0 END
FROM @results AS x JOIN {messages} AS m WITH (NOLOCK) ON m.seq = x.seq AND m.message_id = x.id
	LEFT JOIN {attempts} AS a WITH (READCOMMITTEDLOCK, READPAST) ON a.message = x.seq AND a.attempt = x.attempts + 1
WHERE a.outcome = x.outcome AND CONVERT(varbinary(2000), a.node) = CONVERT(varbinary(2000), x.node)
	OR a.message IS NULL AND m.attempts = x.attempts AND m.state = 'pending';
