-- $2: the limit, -1: none, NULL: it stays; $5: for how many microseconds to pause, NULL: it stays.
INSERT INTO {handlers} AS h (name, override, override_by, override_note, paused_until, paused_by, paused_note)
SELECT $1::text, nullif($2::integer, -1), CASE WHEN $2::integer IS NULL THEN '' ELSE $3::text END,
	CASE WHEN $2::integer IS NULL THEN '' ELSE $4::text END, p.until, CASE WHEN p.until IS NOT NULL THEN $3::text END,
	CASE WHEN p.until IS NOT NULL THEN $4::text END
FROM (SELECT CASE WHEN $5::bigint > 0 THEN clock_timestamp() + $5::bigint * interval '1 microsecond' END AS until) AS p
ON CONFLICT (name) DO UPDATE SET
	override = CASE WHEN $2::integer IS NULL THEN h.override ELSE excluded.override END,
	override_by = CASE WHEN $2::integer IS NULL THEN h.override_by ELSE excluded.override_by END,
	override_note = CASE WHEN $2::integer IS NULL THEN h.override_note ELSE excluded.override_note END,
	paused_until = CASE WHEN $5::bigint IS NULL THEN h.paused_until ELSE excluded.paused_until END,
	paused_by = CASE WHEN $5::bigint IS NULL THEN h.paused_by ELSE excluded.paused_by END,
	paused_note = CASE WHEN $5::bigint IS NULL THEN h.paused_note ELSE excluded.paused_note END
