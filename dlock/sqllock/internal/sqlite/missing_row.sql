-- Finds the first slot after ?2, up to ?3, that has no row.
SELECT CASE WHEN NOT EXISTS (SELECT 1 FROM {table} WHERE resource_name = ?1 AND slot = ?2 + 1) THEN ?2 + 1
	ELSE (SELECT min(slot) + 1 FROM {table} AS before WHERE resource_name = ?1 AND slot > ?2 AND slot < ?3
		AND NOT EXISTS (SELECT 1 FROM {table} WHERE resource_name = ?1 AND slot = before.slot + 1)) END
