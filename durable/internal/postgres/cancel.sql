WITH was AS MATERIALIZED (SELECT r.id, r.state FROM {runs} AS r WHERE r.id = $1::bigint FOR NO KEY UPDATE),
canceled AS (
	UPDATE {runs} AS r SET canceled_by = $2::text, canceled_note = $3::text,
		state = CASE was.state WHEN 'queued' THEN 'canceled' ELSE was.state END,
		finished_at = CASE was.state WHEN 'queued' THEN clock_timestamp() END
	FROM was WHERE r.id = $1::bigint AND was.state IN ('queued', 'running')
)
SELECT coalesce((SELECT state FROM was), '')
