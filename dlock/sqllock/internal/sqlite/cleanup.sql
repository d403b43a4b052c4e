-- Deletes, of the rows after (?1, ?2) up to the last of name ?3, those that nobody has used for ?4. Slots go from the last one on, and those of a name at
-- once: a gap would hide a slot for a while. What concerns a whole name goes when no slot of it was left before.
WITH used AS MATERIALIZED (
	SELECT resource_name, max(slot) AS slot FROM {table}
	WHERE resource_name >= ?1 AND resource_name <= ?3 AND slot >= 0
	AND (max(coalesce(acquired_at, 0), coalesce(expires_at, 0), coalesce(released_at, 0)) >= {now} - ?4 OR fence >= {now})
	GROUP BY resource_name
)
DELETE FROM {table}
WHERE (resource_name, slot) > (?1, ?2) AND resource_name <= ?3
AND CASE WHEN slot >= 0
	THEN slot > coalesce((SELECT used.slot FROM used WHERE used.resource_name = {name}.resource_name), -1)
	ELSE coalesce(tick, 0) < {now} - ?4 AND overrides_version IS NULL -- overrides stay
		AND NOT EXISTS (SELECT 1 FROM {table} AS s WHERE s.resource_name = {name}.resource_name AND s.slot >= 0)
	END
