-- Deletes, of the rows after (?1, ?2) up to the last one of name ?3, those that have not been used
-- for ?4. Slots of a name are deleted from the highest one down and all at once, because a gap
-- would hide a slot for a while. The row with slot -1 is deleted by the first cleanup that finds no
-- slot of that name.
WITH used AS MATERIALIZED (
	SELECT resource_name, max(slot) AS slot FROM {table}
	WHERE resource_name >= ?1 AND resource_name <= ?3 AND slot >= 0
	AND (max(coalesce(acquired_at, 0), coalesce(expires_at, 0), coalesce(released_at, 0)) >= {now} - ?4
		OR fence >= {now})
	GROUP BY resource_name
)
DELETE FROM {table}
WHERE (resource_name, slot) > (?1, ?2) AND resource_name <= ?3
AND CASE WHEN slot >= 0
	THEN slot > coalesce((SELECT used.slot FROM used WHERE used.resource_name = {name}.resource_name), -1)
	ELSE max(coalesce(tick, 0), coalesce(asked_at, 0)) < {now} - ?4 AND overrides_version IS NULL -- overrides stay
		AND NOT EXISTS (SELECT 1 FROM {table} AS s WHERE s.resource_name = {name}.resource_name AND s.slot >= 0)
	END
