-- $2: for how many microseconds to pause; NULL: it stays.
INSERT INTO {schedules} AS s (name, paused_until, paused_by, paused_note)
SELECT $1::text, p.until, CASE WHEN p.until IS NOT NULL THEN $3::text END,
	CASE WHEN p.until IS NOT NULL THEN $4::text END
FROM (SELECT CASE WHEN $2::bigint > 0 THEN clock_timestamp() + $2::bigint * interval '1 microsecond' END AS until) AS p
ON CONFLICT (name) DO UPDATE SET paused_until = excluded.paused_until, paused_by = excluded.paused_by,
	paused_note = excluded.paused_note
WHERE $2::bigint IS NOT NULL
