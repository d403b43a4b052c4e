{begin}
DECLARE @results TABLE (seq bigint, attempts int, outcome varchar(10) COLLATE Latin1_General_BIN2, retry_in bigint,
	took bigint, node nvarchar(1000), error nvarchar(max));
INSERT INTO @results SELECT x.seq, x.attempts, x.outcome, x.retry_in, x.took, x.node, x.error
FROM OPENJSON({results}) WITH (seq bigint, attempts int, outcome varchar(10), retry_in bigint, took bigint,
	node nvarchar(1000), error nvarchar(max)) AS x;
DECLARE @written TABLE (seq bigint, attempts int);
BEGIN TRANSACTION;
UPDATE m SET
	attempts = x.attempts + 1,
	tried = m.tried + 1,
	state = CASE x.outcome WHEN 'ok' THEN 'dispatched' WHEN 'transient' THEN 'pending' ELSE 'dead' END,
	next_attempt_at = CASE x.outcome WHEN 'transient' THEN
		DATEADD(microsecond, x.retry_in % 1000000, DATEADD(second, x.retry_in / 1000000, @now)) -- it takes an int
		ELSE m.next_attempt_at END,
	finished_at = CASE x.outcome WHEN 'transient' THEN NULL ELSE @now END,
	last_error = CASE x.outcome WHEN 'ok' THEN m.last_error ELSE x.error END
OUTPUT inserted.seq, inserted.attempts INTO @written (seq, attempts)
FROM {messages} AS m JOIN @results AS x ON x.seq = m.seq AND x.attempts = m.attempts
WHERE m.state = 'pending';
INSERT INTO {attempts} (message, attempt, at, took, node, outcome, error)
SELECT w.seq, w.attempts, @now, x.took, x.node, x.outcome, x.error
FROM @written AS w JOIN @results AS x ON x.seq = w.seq AND x.attempts + 1 = w.attempts;
COMMIT TRANSACTION;
SELECT a.message FROM @results AS x JOIN {attempts} AS a ON a.message = x.seq AND a.attempt = x.attempts + 1
WHERE a.outcome = x.outcome AND CONVERT(varbinary(2000), a.node) = CONVERT(varbinary(2000), x.node);
