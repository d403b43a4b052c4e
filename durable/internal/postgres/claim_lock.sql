-- $1: the handlers of the worker as JSON, $2: its limit for all of them together. It locks the rows
-- of the limits that they have, in the order of their names, and returns the names of those that it
-- could not lock. What is counted afterwards, by a statement of its own, has all that was committed
-- by those who had them before. $3: how many milliseconds to wait for a lock, in this transaction;
-- 0: it stays as it is.
WITH wait AS MATERIALIZED (
	SELECT CASE WHEN $3::bigint > 0 THEN set_config('lock_timeout', $3::bigint::text, true) END AS set
),
limits AS MATERIALIZED (
	SELECT h.name FROM wait CROSS JOIN {handlers} AS h
	LEFT JOIN json_to_recordset($1::text::json) AS x(name text, max_concurrency integer) ON x.name = h.name COLLATE "C"
	WHERE coalesce(wait.set, '') IS NOT NULL AND (
		CASE h.name WHEN '' THEN $2::integer > 0 ELSE x.max_concurrency > 0 END
		OR h.override IS NOT NULL AND (h.name = '' OR x.name IS NOT NULL))
),
mine AS MATERIALIZED (
	SELECT h.name FROM {handlers} AS h WHERE h.name = ANY (ARRAY(SELECT name FROM limits)) ORDER BY h.name
	FOR UPDATE OF h{skip}
)
SELECT name FROM limits WHERE name NOT IN (SELECT name FROM mine)
