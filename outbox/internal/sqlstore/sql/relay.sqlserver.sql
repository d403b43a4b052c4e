-- Never run against a server.

-- name: begin
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT {wait};
DECLARE @now datetime2(6) = SYSUTCDATETIME();

-- name: layout
SELECT l.shards, l.epoch FROM {layout} AS l WHERE l.id = 1

-- name: set_layout
{begin}
UPDATE {layout} SET shards = {shards}, epoch = epoch + 1 WHERE id = 1 AND shards <> {shards};

-- name: unknown
DECLARE @unknown TABLE (topic varbinary(200) NOT NULL PRIMARY KEY);
INSERT INTO @unknown (topic)
SELECT DISTINCT m.topic FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
WHERE m.state = 'pending'
	AND (m.topic IN (SELECT CONVERT(varbinary(200), k.value, 2) FROM OPENJSON({full_topics}) AS k)
		OR {all} = 0
		AND m.topic NOT IN (SELECT CONVERT(varbinary(200), k.value, 2) FROM OPENJSON({topics_with_sinks}) AS k));

-- name: edge
-- Where the scan in row order ends. Messages after this row are searched key by key.
DECLARE @edge bigint = (SELECT m.seq FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
	WHERE m.state = 'pending' ORDER BY m.seq OFFSET {window} ROWS FETCH NEXT 1 ROWS ONLY);

-- name: inside
m.seq < COALESCE(@edge, 9223372036854775807)

-- name: free
m.topic NOT IN (SELECT u.topic FROM @unknown AS u)
	AND (m.[key] = 0x OR NOT EXISTS (
		SELECT 1 FROM {messages} AS e WITH (READCOMMITTEDLOCK, READPAST)
		WHERE e.[key] = m.[key] AND e.state = 'pending' AND e.tried > 0 AND e.seq < m.seq))
	AND (m.[key] = 0x OR {stop} = 0 OR NOT EXISTS (
		SELECT 1 FROM {messages} AS e WITH (READCOMMITTEDLOCK, READPAST)
		WHERE e.[key] = m.[key] AND e.state = 'dead' AND e.seq < m.seq))
	AND (m.[key] = 0x OR NOT EXISTS (
		SELECT 1 FROM @unknown AS u JOIN {messages} AS e WITH (READCOMMITTEDLOCK, READPAST) ON e.topic = u.topic
		WHERE e.state = 'pending' AND e.[key] = m.[key] AND e.seq < m.seq))

-- name: mine
m.key_hash % {shards} = {shard}
	AND m.[key] NOT IN (SELECT CONVERT(varbinary(200), k.value, 2) FROM OPENJSON({keys}) AS k)
	AND m.seq NOT IN (SELECT CONVERT(bigint, k.value) FROM OPENJSON({ids}) AS k)
	AND {free}

-- name: again
m.state = 'pending' AND m.tried > 0
	AND (m.[key] = 0x OR NOT EXISTS (
		SELECT 1 FROM {messages} AS e WITH (READCOMMITTEDLOCK, READPAST)
		WHERE e.[key] = m.[key] AND e.state = 'pending' AND e.tried = 0 AND e.seq < m.seq))

-- name: delivery
d.seq, d.message_id, d.topic, d.[key], d.key_hash, d.payload, d.headers, d.attempts, d.attempts - d.tried,
	d.crashes, CASE WHEN d.requeued_at IS NULL THEN 0 ELSE 1 END, DATEDIFF_BIG(MICROSECOND, d.created_at, @now),
	DATEDIFF_BIG(MICROSECOND, d.failing_since, d.next_attempt_at)

-- name: due
-- Rows that an open transaction has locked are skipped and found later.
{begin}
{unknown}
{edge}
DECLARE @due TABLE (seq bigint NOT NULL PRIMARY KEY);
INSERT INTO @due (seq)
SELECT TOP ({limit}) m.seq FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
WHERE m.state = 'pending' AND {inside} AND m.tried = 0
	AND {mine}
ORDER BY m.seq;
INSERT INTO @due (seq)
SELECT TOP ({limit}) m.seq FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
WHERE {again} AND m.next_attempt_at <= @now
	AND {mine}
	AND NOT EXISTS (SELECT 1 FROM @due AS x WHERE x.seq = m.seq) -- another relay may have marked it since
ORDER BY m.next_attempt_at;
DECLARE @next bigint = (
	SELECT TOP (1) DATEDIFF_BIG(MICROSECOND, @now, m.next_attempt_at)
	FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
	WHERE {again} AND m.next_attempt_at > @now
		AND {mine}
	ORDER BY m.next_attempt_at);
SELECT l.shards, l.epoch, @next, @edge, {delivery}
FROM {layout} AS l LEFT JOIN ({messages} AS d JOIN (
	SELECT b.seq FROM (SELECT w.seq, SUM(DATALENGTH(p.payload)) OVER (ORDER BY w.seq ROWS UNBOUNDED PRECEDING)
			- DATALENGTH(p.payload) AS ahead
		FROM (SELECT TOP ({limit}) x.seq FROM @due AS x ORDER BY x.seq) AS w JOIN {messages} AS p ON p.seq = w.seq) AS b
	WHERE b.ahead < {bytes}) AS o
	ON o.seq = d.seq) ON 1 = 1
WHERE l.id = 1
ORDER BY d.seq;

-- name: due_live
-- Messages that were appended after the last requeued message and have no requeued message before
-- them in their key.
{begin}
{unknown}
DECLARE @last bigint = (SELECT MAX(m.seq) FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
	WHERE m.state = 'pending' AND m.requeued_at IS NOT NULL);
SELECT {delivery}
FROM (SELECT w.*, SUM(DATALENGTH(w.payload)) OVER (ORDER BY w.seq ROWS UNBOUNDED PRECEDING)
	- DATALENGTH(w.payload) AS ahead FROM (
	SELECT TOP ({limit}) m.* FROM (
		SELECT TOP ({window}) x.* FROM {messages} AS x WITH (READCOMMITTEDLOCK, READPAST)
		WHERE x.state = 'pending' AND x.seq > @last ORDER BY x.seq) AS m
	WHERE m.tried = 0
		AND (m.[key] = 0x OR NOT EXISTS (
			SELECT 1 FROM {messages} AS e WITH (READCOMMITTEDLOCK, READPAST)
			WHERE e.[key] = m.[key] AND e.state = 'pending' AND e.tried = 0 AND e.seq <= @last))
		AND {mine}
	ORDER BY m.seq
) AS w) AS d
WHERE d.ahead < {bytes}
ORDER BY d.seq;

-- name: due_keyless
{begin}
{unknown}
SELECT {delivery}
FROM (SELECT w.*, SUM(DATALENGTH(w.payload)) OVER (ORDER BY w.seq ROWS UNBOUNDED PRECEDING)
	- DATALENGTH(w.payload) AS ahead FROM (
	SELECT TOP ({limit}) m.* FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
	WHERE m.state = 'pending' AND m.tried = 0 AND m.[key] = 0x
		AND {mine}
	ORDER BY m.seq
) AS w) AS d
WHERE d.ahead < {bytes}
ORDER BY d.seq;

-- name: page
DECLARE @page TABLE (seq bigint NOT NULL PRIMARY KEY, [key] varbinary(200) NOT NULL);
INSERT INTO @page (seq, [key])
SELECT TOP ({page_size}) m.seq, m.[key] FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
WHERE m.state = 'pending' AND m.tried = 0 AND m.[key] > {after}
ORDER BY m.[key], m.seq;

-- name: due_by_key
{begin}
{unknown}
{page}
SELECT l.n, l.[key], {delivery}
FROM (SELECT COUNT_BIG(*) AS n, COALESCE(MAX(o.[key]), 0x) AS [key] FROM @page AS o) AS l
	LEFT JOIN (SELECT b.* FROM (SELECT w.*, SUM(DATALENGTH(w.payload)) OVER (ORDER BY w.[key], w.seq
			ROWS UNBOUNDED PRECEDING) - DATALENGTH(w.payload) AS ahead FROM (
		SELECT TOP ({limit}) m.* FROM @page AS o JOIN {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
			ON m.seq = o.seq
		WHERE m.state = 'pending' AND m.tried = 0
			AND {mine}
		ORDER BY m.[key], m.seq
		) AS w) AS b WHERE b.ahead < {bytes}
	) AS d ON 1 = 1
ORDER BY d.[key], d.seq;

-- name: note_begun
{begin}
-- Locked rows are skipped; their messages are delivered nevertheless.
UPDATE m SET crashes = x.crashes
FROM {messages} AS m WITH (UPDLOCK, ROWLOCK, READCOMMITTEDLOCK, READPAST)
	JOIN OPENJSON({begun}) WITH (id char(32), seq bigint, attempts int, crashes int) AS x
		ON x.seq = m.seq AND CONVERT(binary(16), x.id, 2) = m.message_id AND x.attempts = m.attempts
WHERE m.state = 'pending';

-- name: mark
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
-- Locked rows are skipped and reported as locked.
UPDATE m SET
	attempts = x.attempts + 1,
	tried = m.tried + 1,
	crashes = 0,
	state = CASE x.outcome WHEN 'ok' THEN 'dispatched' WHEN 'transient' THEN 'pending' ELSE 'dead' END,
	next_attempt_at = CASE x.outcome WHEN 'transient' THEN
		DATEADD(microsecond, x.retry_in % 1000000, DATEADD(second, x.retry_in / 1000000, @now)) -- DATEADD takes an int
		ELSE m.next_attempt_at END,
	failing_since = CASE
		WHEN x.outcome = 'ok' THEN m.failing_since
		WHEN m.failing_since IS NULL OR m.failing_since > x.began THEN x.began -- in the future: the clock was ahead
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

-- name: sweep
{begin}
DECLARE @dispatched datetime2(6) =
	DATEADD(second, -({dispatched} / 1000000), DATEADD(microsecond, -({dispatched} % 1000000), @now));
DECLARE @dead datetime2(6) = DATEADD(second, -({dead} / 1000000), DATEADD(microsecond, -({dead} % 1000000), @now));
DELETE TOP ({limit}) m FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
WHERE {dispatched} > 0 AND m.state = 'dispatched' AND m.finished_at < @dispatched
	OR {dead} > 0 AND m.state = 'dead' AND m.finished_at < @dead;
SELECT @@ROWCOUNT;

-- name: sweep_inbox
{begin}
DELETE TOP ({limit}) i FROM {inbox} AS i WITH (READCOMMITTEDLOCK, READPAST)
WHERE {inbox_kept} > 0 AND i.received_at
	< DATEADD(second, -({inbox_kept} / 1000000), DATEADD(microsecond, -({inbox_kept} % 1000000), @now));
SELECT @@ROWCOUNT;

-- name: stats
{begin}
{unknown}
{edge}
SELECT
	(SELECT COUNT_BIG(*) FROM (SELECT TOP ({most}) m.seq FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
		WHERE m.state = 'pending') AS p),
	(SELECT COUNT_BIG(*) FROM (SELECT TOP ({most}) m.seq FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
		WHERE m.state = 'dead' AND m.finished_at IS NOT NULL) AS d),
	(SELECT DATEDIFF_BIG(MICROSECOND, MIN(o.next_attempt_at), @now) FROM (
		SELECT f.next_attempt_at FROM (
			SELECT TOP ({first}) m.next_attempt_at FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
			WHERE m.state = 'pending' AND {inside} AND m.tried = 0
				AND {free}
			ORDER BY m.seq) AS f
		UNION ALL
		SELECT r.next_attempt_at FROM (
			SELECT TOP ({first}) m.next_attempt_at FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
			WHERE {again} AND m.next_attempt_at <= @now
				AND {free}
			ORDER BY m.next_attempt_at) AS r) AS o),
	(SELECT DATEDIFF_BIG(MICROSECOND, MIN(o.since), @now) FROM (
		SELECT f.since FROM (
			SELECT TOP ({window}) COALESCE(m.requeued_at, m.created_at) AS since
			FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
			WHERE m.state = 'pending' ORDER BY m.seq) AS f
		UNION ALL
		SELECT r.created_at FROM (
			SELECT TOP (1) m.created_at FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
			WHERE m.state = 'pending' AND m.seq > (
				SELECT MAX(q.seq) FROM {messages} AS q WITH (READCOMMITTEDLOCK, READPAST)
				WHERE q.state = 'pending' AND q.requeued_at IS NOT NULL)
			ORDER BY m.seq) AS r) AS o),
	@edge, u.topic,
	(SELECT COUNT_BIG(*) FROM (SELECT TOP ({most}) m.seq FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
		WHERE m.state = 'pending' AND m.topic = u.topic) AS w)
FROM (SELECT 1 AS one) AS n
	LEFT JOIN (SELECT TOP ({max_unknown}) u.topic FROM @unknown AS u ORDER BY u.topic) AS u ON 1 = 1;

-- name: oldest_by_key
{begin}
{unknown}
{page}
SELECT l.n, l.[key], COALESCE((
	SELECT DATEDIFF_BIG(MICROSECOND, MIN(m.next_attempt_at), @now)
	FROM @page AS o JOIN {messages} AS m WITH (READCOMMITTEDLOCK, READPAST) ON m.seq = o.seq
	WHERE m.state = 'pending' AND m.tried = 0
		AND {free}), 0)
FROM (SELECT COUNT_BIG(*) AS n, COALESCE(MAX(o.[key]), 0x) AS [key] FROM @page AS o) AS l;

-- name: failing
{begin}
SELECT TOP ({most_topics}) f.topic, f.n, DATEDIFF_BIG(MICROSECOND, '1970-01-01', f.failing_since),
	DATEDIFF_BIG(MICROSECOND, f.failing_since, @now), f.last_error
FROM (
	SELECT o.*, COUNT_BIG(*) OVER (PARTITION BY o.topic) AS n,
		ROW_NUMBER() OVER (PARTITION BY o.topic ORDER BY o.failing_since, o.seq) AS place
	FROM (
		SELECT TOP ({most}) m.seq, m.topic, m.failing_since, m.last_error
		FROM {messages} AS m WITH (READCOMMITTEDLOCK, READPAST)
		WHERE m.state = 'pending' AND m.failing_since IS NOT NULL ORDER BY m.failing_since) AS o
) AS f
WHERE f.place = 1
ORDER BY f.failing_since, f.topic;
