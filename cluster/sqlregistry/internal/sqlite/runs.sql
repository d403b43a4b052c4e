{columns}
FROM {table} AS t WHERE t.sort = 'run' AND t.lock_name = ?1 AND t.happened_at IS NOT NULL
ORDER BY t.happened_at DESC, t.id DESC LIMIT {runs_per_timer}
