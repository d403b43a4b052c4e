SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT {wait};
DECLARE @now datetime2(6) = SYSUTCDATETIME();
DELETE o FROM {table} AS o JOIN (
	SELECT * FROM (SELECT TOP ({limit}) sort, id FROM {table} AS o WHERE sort = {host} AND {host_is_old}) AS h
	UNION ALL
	SELECT * FROM (SELECT TOP ({limit}) sort, id FROM {table} AS o WHERE sort = {lease} AND {lease_is_old}) AS l
	UNION ALL
	SELECT * FROM (SELECT TOP ({limit}) sort, id FROM (SELECT sort, id, happened_at,
			ROW_NUMBER() OVER (ORDER BY happened_at DESC, id DESC) AS n
			FROM {table} WHERE sort = {event}) AS o
		WHERE n > {max_events} OR DATEDIFF_BIG(MICROSECOND, happened_at, @now) > {events}) AS e
	UNION ALL
	SELECT * FROM (SELECT TOP ({limit}) sort, id FROM (
			SELECT sort, id FROM {table} WHERE sort = {run} AND DATEDIFF_BIG(MICROSECOND, happened_at, @now) > {runs}
			UNION
			SELECT sort, id FROM (SELECT sort, id,
				ROW_NUMBER() OVER (PARTITION BY lock_name ORDER BY happened_at DESC, id DESC) AS n
				FROM {table} WHERE sort = {run} AND lock_name IN (
					SELECT lock_name FROM {table} WHERE sort = {run}
					GROUP BY lock_name HAVING COUNT(*) > {runs_per_timer})
			) AS x WHERE n > {runs_per_timer}
		) AS y) AS r
) AS old ON old.sort = o.sort AND old.id = o.id
WHERE o.sort NOT IN ({host}, {lease}) OR o.sort = {host} AND {host_is_old} OR o.sort = {lease} AND {lease_is_old};
SELECT @@ROWCOUNT;
