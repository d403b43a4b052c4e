WITH now AS MATERIALIZED (SELECT clock_timestamp() AS at)
SELECT now.at, (SELECT min(n.next_due_at) FROM {schedules} AS n WHERE n.next_due_at > now.at),
	s.name, s.spec, s.next_spec, s.next_due_at, coalesce(s.paused_until > now.at, false)
FROM now LEFT JOIN LATERAL (
	SELECT * FROM {schedules} AS d WHERE d.next_due_at <= now.at
	UNION ALL
	SELECT * FROM {schedules} AS c WHERE c.spec <> c.next_spec AND coalesce(c.next_due_at > now.at, true)
) AS s ON true
ORDER BY s.name
