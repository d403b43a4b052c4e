{begin}
DECLARE @n int;
BEGIN TRANSACTION;
UPDATE m SET state = 'pending', tried = 0, crashes = 0, next_attempt_at = @now, requeued_at = @now,
	failing_since = NULL, finished_at = NULL, note = {note}
FROM {messages} AS m
WHERE m.state = 'dead' AND ({older} = 0 OR m.created_at
	>= DATEADD(second, -({older} / 1000000), DATEADD(microsecond, -({older} % 1000000), @now))){where};
SET @n = @@ROWCOUNT;
-- What is left is too old.
SELECT @n, (SELECT COUNT(*) FROM {messages} AS m WHERE m.state = 'dead'{where});
COMMIT TRANSACTION;
