-- A run that is queued again may wait beside others of its schedule. "which" is where the
-- filter is added.
WITH old AS MATERIALIZED (
	SELECT r.id FROM {runs} AS r WHERE r.state IN ('dead', 'canceled') AND r.finished_at IS NOT NULL /* which */
	ORDER BY r.id DESC LIMIT $3::bigint
),
queued AS (
	UPDATE {runs} AS r SET state = 'queued', backfill = r.schedule IS NOT NULL, run_at = clock_timestamp(),
		uncounted = r.attempt, crashes = 0, failing_since = NULL, canceled_by = NULL, canceled_note = NULL,
		queued_by = $1::text, queued_note = $2::text,
		finished_at = NULL
	WHERE r.id = ANY (ARRAY(SELECT id FROM old)) AND r.state IN ('dead', 'canceled') AND r.finished_at IS NOT NULL
	RETURNING 1
)
SELECT (SELECT count(*) FROM queued), (SELECT CASE WHEN count(*) = $3::bigint THEN min(old.id) END FROM old)
