SELECT COUNT(*) FROM information_schema.ROUTINES
WHERE ROUTINE_SCHEMA = COALESCE(?, DATABASE()) AND ROUTINE_NAME IN (?, ?, ?, ?, ?, ?) AND ROUTINE_TYPE = 'PROCEDURE'
	AND (CAST(ROUTINE_NAME AS BINARY) IN (?, ?, ?, ?, ?, ?) OR @@lower_case_table_names > 0)
