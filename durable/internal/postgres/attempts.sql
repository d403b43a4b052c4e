SELECT a.attempt, a.worker, a.started_at, a.finished_at, a.outcome, a.error
FROM {attempts} AS a WHERE a.run_id = $1::bigint ORDER BY a.attempt
