DELETE FROM {table} WHERE (sort, id) IN (
	SELECT * FROM (SELECT sort, id FROM {table} WHERE sort = 'host' AND renewed_at < {now} - max({hosts}, 3 * ttl)
		LIMIT {limit})
	UNION ALL
	SELECT * FROM (SELECT sort, id FROM {table} WHERE sort = 'lease'
		AND max(renewed_at, CASE WHEN released_at IS NULL THEN expires_at ELSE renewed_at END) < {now} - {leases}
		LIMIT {limit})
	UNION ALL
	SELECT * FROM (SELECT sort, id FROM (SELECT sort, id, happened_at,
			row_number() OVER (ORDER BY happened_at DESC, id DESC) AS n
			FROM {table} WHERE sort = 'event' AND happened_at IS NOT NULL)
		WHERE n > {max_events} OR happened_at < {now} - {events} LIMIT {limit})
	UNION ALL
	SELECT * FROM (SELECT sort, id FROM (
			SELECT sort, id FROM {table} WHERE sort = 'run' AND happened_at < {now} - {runs}
			UNION
			SELECT sort, id FROM (SELECT sort, id,
				row_number() OVER (PARTITION BY lock_name ORDER BY happened_at DESC, id DESC) AS n
				FROM {table} WHERE sort = 'run' AND happened_at IS NOT NULL AND lock_name IN (
					SELECT lock_name FROM {table} WHERE sort = 'run' AND happened_at IS NOT NULL
					GROUP BY lock_name HAVING COUNT(*) > {runs_per_timer})
			) WHERE n > {runs_per_timer}
		) LIMIT {limit}))
