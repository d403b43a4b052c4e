-- What is locked is left to whoever has it, and what was requeued since this statement began is
-- looked at once more, and stays.
WITH now AS MATERIALIZED (SELECT pg_catalog.clock_timestamp() AS at),
old AS MATERIALIZED (
	SELECT o.seq FROM now, (VALUES ('dispatched' COLLATE "C", {dispatched}), ('dead', {dead})) AS k(state, kept),
		LATERAL (
			SELECT m.seq FROM {messages} AS m
			WHERE m.state = k.state AND m.finished_at < now.at - k.kept * interval '1 microsecond' AND k.kept > 0
			ORDER BY m.finished_at LIMIT {limit}
		) AS o
	LIMIT {limit}
),
messages AS (
	DELETE FROM {messages} WHERE seq IN (
		SELECT m.seq FROM {messages} AS m JOIN old ON old.seq = m.seq, now
		WHERE m.finished_at < now.at - interval '1 microsecond'
			* CASE m.state WHEN 'dispatched' THEN {dispatched} ELSE {dead} END
		ORDER BY m.seq FOR UPDATE OF m SKIP LOCKED)
	RETURNING 1
),
records AS (
	DELETE FROM {inbox} WHERE (consumer, message_id) IN (
		SELECT i.consumer, i.message_id FROM {inbox} AS i, now
		WHERE i.received_at < now.at - {inbox_kept} * interval '1 microsecond' AND {inbox_kept} > 0
		ORDER BY i.received_at LIMIT {limit} FOR UPDATE OF i SKIP LOCKED)
	RETURNING 1
)
SELECT (SELECT count(*) FROM messages) + (SELECT count(*) FROM records)
