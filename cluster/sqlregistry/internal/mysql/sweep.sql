-- Rows that are read are locked, those of hosts and leases last, because these are written all the
-- time. At read committed they are not, and so looked at again.
{bounded} DELETE {hint} o FROM {table} AS o JOIN (
	SELECT * FROM (SELECT sort, id FROM (SELECT sort, id, happened_at,
			ROW_NUMBER() OVER (ORDER BY happened_at DESC, id DESC) AS n
			FROM {table} WHERE sort = 'event') AS o
		WHERE n > {max_events} OR happened_at < {now} - INTERVAL {events} MICROSECOND LIMIT {limit}) AS e
	UNION ALL
	SELECT * FROM (SELECT sort, id FROM (
			SELECT sort, id FROM {table} WHERE sort = 'run' AND happened_at < {now} - INTERVAL {runs} MICROSECOND
			UNION
			SELECT sort, id FROM (SELECT sort, id,
				ROW_NUMBER() OVER (PARTITION BY lock_name ORDER BY happened_at DESC, id DESC) AS n
				FROM {table} WHERE sort = 'run' AND lock_name IN (
					SELECT lock_name FROM {table} WHERE sort = 'run'
					GROUP BY lock_name HAVING COUNT(*) > {runs_per_timer})
			) AS x WHERE n > {runs_per_timer}
		) AS y LIMIT {limit}) AS r
	UNION ALL
	SELECT * FROM (SELECT sort, id FROM {table} AS o WHERE sort = 'host' AND {host_is_old} LIMIT {limit}) AS h
	UNION ALL
	SELECT * FROM (SELECT sort, id FROM {table} AS o WHERE sort = 'lease' AND {lease_is_old} LIMIT {limit}) AS l
) AS old ON old.sort = o.sort AND old.id = o.id
WHERE CASE o.sort WHEN 'host' THEN {host_is_old} WHEN 'lease' THEN {lease_is_old} ELSE 1 END
