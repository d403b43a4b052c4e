-- $1, $2: plan_at and name of the schedule behind which to begin, $3: how many at most. What is the
-- same in all rows is computed once, and each part looks only at the rows that it returns.
WITH now AS MATERIALIZED (SELECT clock_timestamp() AS at),
next AS MATERIALIZED (
	SELECT min(n.plan_at) AS at FROM (
		SELECT s.plan_at FROM {schedules} AS s WHERE s.plan_at > (SELECT at FROM now) ORDER BY s.plan_at LIMIT 1) AS n
),
due AS MATERIALIZED (
	SELECT s.* FROM {schedules} AS s
	WHERE (s.plan_at, s.name) > ($1::text::timestamptz, $2::text COLLATE "C") AND s.plan_at <= (SELECT at FROM now)
	ORDER BY s.plan_at, s.name LIMIT $3::bigint
)
SELECT now.at, next.at, s.name, s.spec, s.next_spec, s.next_due_at, s.paused_at, s.paused_until
FROM now CROSS JOIN next LEFT JOIN due AS s ON true
ORDER BY s.plan_at, s.name
