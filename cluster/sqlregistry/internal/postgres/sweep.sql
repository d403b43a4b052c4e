-- Rows that another session has locked are left to it. Those that were written since this statement
-- began are looked at again, and stay.
DELETE FROM {table} AS t USING (
	SELECT o.sort, o.id FROM {table} AS o
	WHERE (o.sort, o.id) IN (
		SELECT * FROM (SELECT sort, id FROM {table} AS o WHERE sort = 'host' AND {host_is_old} LIMIT {limit}) AS h
		UNION ALL
		SELECT * FROM (SELECT sort, id FROM {table} AS o WHERE sort = 'lease' AND {lease_is_old} LIMIT {limit}) AS l
		UNION ALL
		SELECT * FROM (SELECT sort, id FROM (SELECT sort, id, happened_at,
				row_number() OVER (ORDER BY happened_at DESC, id DESC) AS n
				FROM {table} WHERE sort = 'event' AND happened_at IS NOT NULL) AS o
			WHERE n > {max_events} OR happened_at < {now} - {events} * interval '1 microsecond' LIMIT {limit}) AS e
		UNION ALL
		SELECT * FROM (SELECT sort, id FROM (
				SELECT sort, id FROM {table}
				WHERE sort = 'run' AND happened_at < {now} - {runs} * interval '1 microsecond'
				UNION
				SELECT sort, id FROM (SELECT sort, id,
					row_number() OVER (PARTITION BY lock_name ORDER BY happened_at DESC, id DESC) AS n
					FROM {table} WHERE sort = 'run' AND happened_at IS NOT NULL AND lock_name IN (
						SELECT lock_name FROM {table} WHERE sort = 'run' AND happened_at IS NOT NULL
						GROUP BY lock_name HAVING COUNT(*) > {runs_per_timer})
				) AS x WHERE n > {runs_per_timer}
			) AS y LIMIT {limit}) AS r)
		AND CASE o.sort WHEN 'host' THEN {host_is_old} WHEN 'lease' THEN {lease_is_old} ELSE true END
	ORDER BY o.sort, o.id FOR UPDATE SKIP LOCKED
) AS old WHERE t.sort = old.sort AND t.id = old.id
