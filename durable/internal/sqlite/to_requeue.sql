-- The runs that can be queued again; the conditions of a filter are added.
SELECT id FROM {runs} WHERE state IN ('dead', 'canceled') AND finished_at IS NOT NULL
