SELECT 'engine', TABLE_NAME, COALESCE(ENGINE, TABLE_TYPE) FROM information_schema.TABLES
WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ?
	AND (CAST(TABLE_NAME AS BINARY) = ? OR @@lower_case_table_names > 0)
UNION ALL
SELECT 'column', COLUMN_NAME, CONCAT_WS(' ', COLUMN_TYPE, COLLATION_NAME) FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ?
	AND (CAST(TABLE_NAME AS BINARY) = ? OR @@lower_case_table_names > 0)
UNION ALL
SELECT 'index', CONCAT(INDEX_NAME, ' ', SEQ_IN_INDEX), COLUMN_NAME FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ?
	AND (CAST(TABLE_NAME AS BINARY) = ? OR @@lower_case_table_names > 0)
UNION ALL
SELECT 'session', 'autocommit', IF(@@SESSION.autocommit, 'on', 'off')
UNION ALL
SELECT 'session', 'sql_mode', @@SESSION.sql_mode
LIMIT 18446744073709551615 -- all, whatever sql_select_limit is
