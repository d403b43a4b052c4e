-- The arguments are the schema and the table names, three times. Each row of the result contains
-- table, kind, name and value. The last row decides which tables match if names differ only in
-- case. No text is empty, because the sql_mode EMPTY_STRING_IS_NULL turns empty texts into NULL.
SELECT TABLE_NAME, 'engine', 'engine', COALESCE(ENGINE, TABLE_TYPE) FROM information_schema.TABLES
WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME IN ({names})
UNION ALL
SELECT TABLE_NAME, 'column', COLUMN_NAME, CONCAT_WS(' ', COLUMN_TYPE, CHARACTER_SET_NAME, COLLATION_NAME)
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME IN ({names})
UNION ALL
SELECT TABLE_NAME, 'index', CONCAT(INDEX_NAME, ' ', SEQ_IN_INDEX), COLUMN_NAME
FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME IN ({names})
UNION ALL SELECT 'session', 'session', 'autocommit', IF(@@SESSION.autocommit, '1', '0')
UNION ALL SELECT 'session', 'session', 'completion_type', CONCAT(@@SESSION.completion_type)
UNION ALL SELECT 'session', 'session', 'sql_safe_updates', IF(@@SESSION.sql_safe_updates, '1', '0')
UNION ALL SELECT 'session', 'session', 'sql_mode', CONCAT(@@SESSION.sql_mode)
UNION ALL SELECT 'session', 'session', 'lower_case_table_names', CONCAT(@@lower_case_table_names)
LIMIT 18446744073709551615 -- no limit, regardless of sql_select_limit
