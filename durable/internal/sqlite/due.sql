-- Up to ?4 schedules that need a plan at ?1, behind the one with plan_at ?2 and the name ?3.
SELECT name, spec, next_spec, next_due_at, paused_at, paused_until
FROM {schedules} WHERE (plan_at, name) > (?2, ?3) AND plan_at <= ?1 ORDER BY plan_at, name LIMIT ?4
