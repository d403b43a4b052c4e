WITH now AS MATERIALIZED (SELECT clock_timestamp() AS at)
SELECT now.at, (SELECT min(n.next_due_at) FROM {schedules} AS n WHERE n.next_due_at > now.at),
	s.name, s.spec, s.next_spec, s.next_due_at, s.paused_at, s.paused_until
FROM now LEFT JOIN {schedules} AS s ON s.next_due_at <= now.at OR s.spec <> s.next_spec
ORDER BY s.name
