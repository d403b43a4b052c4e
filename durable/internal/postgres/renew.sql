-- $1: claims of runs as JSON, $2: the worker, $3: the lease in microseconds. A row that is
-- locked is passed over (waited for without {skip}), and answered as one that is not sure.
-- Rows are found by their ids, as in finish.sql.
WITH keys AS MATERIALIZED (
	SELECT * FROM json_to_recordset($1::text::json) AS k(id bigint, attempt integer, claim bigint)
),
mine AS MATERIALIZED (
	SELECT r.id FROM {runs} AS r JOIN keys AS k ON k.id = r.id
	WHERE r.id = ANY (ARRAY(SELECT id FROM keys)) AND r.attempt = k.attempt AND r.state || '' = 'running'
		AND r.claim = k.claim AND r.worker = $2::text
	ORDER BY r.id
	FOR NO KEY UPDATE OF r{skip}
),
renewed AS (
	UPDATE {runs} AS r SET lease_until = clock_timestamp() + $3::bigint * interval '1 microsecond'
	WHERE r.id = ANY (ARRAY(SELECT id FROM mine))
	RETURNING r.id, r.attempt, r.claim, r.canceled_by, r.canceled_note
)
SELECT id, attempt, claim, true, canceled_by, canceled_note FROM renewed
UNION ALL
SELECT r.id, r.attempt, r.claim, false, NULL, NULL FROM {runs} AS r JOIN keys AS k ON k.id = r.id
WHERE r.id = ANY (ARRAY(SELECT id FROM keys)) AND r.attempt = k.attempt AND r.state || '' = 'running'
	AND r.claim = k.claim AND r.worker = $2::text AND r.id NOT IN (SELECT id FROM mine)
