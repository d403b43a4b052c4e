-- The schedules whose next tick is due at ?1, or not known.
SELECT name, spec, next_spec, next_due_at, paused_at, paused_until
FROM {schedules} WHERE spec <> '' AND (next_spec <> spec OR next_due_at <= ?1) ORDER BY name
