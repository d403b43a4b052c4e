{bounded} {columns}
FROM {table} AS t WHERE t.sort = 'run' AND t.lock_name = ?
ORDER BY t.happened_at DESC, t.id DESC LIMIT {runs_per_timer}
