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
	DELETE FROM {messages} WHERE seq = ANY (ARRAY(
		SELECT m.seq FROM {messages} AS m
		WHERE m.seq = ANY (ARRAY(SELECT o.seq FROM old AS o))
			AND m.finished_at < (SELECT at FROM now) - interval '1 microsecond'
				* CASE m.state WHEN 'dispatched' THEN {dispatched} ELSE {dead} END
		ORDER BY m.seq FOR UPDATE OF m SKIP LOCKED))
	RETURNING 1
),
records AS (
	DELETE FROM {inbox} WHERE ctid = ANY (ARRAY(
		SELECT i.ctid FROM {inbox} AS i
		WHERE i.received_at < (SELECT at FROM now) - {inbox_kept} * interval '1 microsecond' AND {inbox_kept} > 0
		ORDER BY i.received_at LIMIT {limit} FOR UPDATE OF i SKIP LOCKED))
	RETURNING 1
)
SELECT (SELECT count(*) FROM messages) + (SELECT count(*) FROM records)
