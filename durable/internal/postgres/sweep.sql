-- $1, $2, $3: for how long succeeded, dead and canceled runs are kept, $4: schedules and handlers
-- that no worker has, in microseconds, or NULL; $5: how many to delete of each at most. What has
-- been queued again, seen again or paused since this statement began is looked at once more, and
-- stays. A pause or a limit that is in force stays, too: without it, what was stopped would run as
-- soon as a worker has it again.
WITH now AS MATERIALIZED (SELECT clock_timestamp() AS at),
old AS MATERIALIZED (
	SELECT d.id FROM now, (VALUES ('succeeded' COLLATE "C", $1::bigint), ('dead', $2::bigint), ('canceled', $3::bigint))
		AS k(state, kept), LATERAL (
			SELECT r.id FROM {runs} AS r
			WHERE r.state = k.state AND r.finished_at < now.at - k.kept * interval '1 microsecond'
			ORDER BY r.finished_at LIMIT $5::bigint
		) AS d
	LIMIT $5::bigint
),
runs AS (
	DELETE FROM {runs} WHERE id = ANY (ARRAY(
		SELECT r.id FROM {runs} AS r, now
		WHERE r.id = ANY (ARRAY(SELECT id FROM old)) AND r.finished_at < now.at - interval '1 microsecond'
			* CASE r.state WHEN 'succeeded' THEN $1::bigint WHEN 'dead' THEN $2::bigint ELSE $3::bigint END
		ORDER BY r.id
		FOR UPDATE OF r SKIP LOCKED))
	RETURNING 1
),
schedules AS (
	DELETE FROM {schedules} WHERE name IN (
		SELECT s.name FROM {schedules} AS s, now
		WHERE s.seen_at < now.at - $4::bigint * interval '1 microsecond'
			AND coalesce(s.paused_until <= now.at, true)
		ORDER BY s.name LIMIT $5::bigint FOR UPDATE OF s SKIP LOCKED)
	RETURNING 1
),
handlers AS (
	DELETE FROM {handlers} WHERE name IN (
		SELECT h.name FROM {handlers} AS h, now
		WHERE h.name <> '' AND h.seen_at < now.at - $4::bigint * interval '1 microsecond'
			AND h.override IS NULL AND coalesce(h.paused_until <= now.at, true)
		ORDER BY h.name LIMIT $5::bigint FOR UPDATE OF h SKIP LOCKED)
	RETURNING 1
)
SELECT (SELECT count(*) FROM runs) + (SELECT count(*) FROM schedules) + (SELECT count(*) FROM handlers)
