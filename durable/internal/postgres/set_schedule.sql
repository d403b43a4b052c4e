-- $2: for how many microseconds to pause, 0: not any more; NULL: it stays. What is left of a pause
-- that is over says which ticks were of it, so that they are not caught up.
INSERT INTO {schedules} AS s (name, paused_at, paused_until, paused_by, paused_note)
SELECT $1::text, now.at, now.at + $2::bigint * interval '1 microsecond', $3::text, $4::text
FROM (SELECT clock_timestamp() AS at) AS now
WHERE $2::bigint IS NOT NULL
ON CONFLICT (name) DO UPDATE SET
	paused_at = CASE WHEN $2::bigint = 0 OR s.paused_until > excluded.paused_at THEN s.paused_at
		ELSE excluded.paused_at END,
	paused_until = CASE WHEN $2::bigint > 0 OR s.paused_until > excluded.paused_until THEN excluded.paused_until
		ELSE s.paused_until END,
	paused_by = excluded.paused_by, paused_note = excluded.paused_note
