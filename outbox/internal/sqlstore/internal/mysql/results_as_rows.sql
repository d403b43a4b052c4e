(SELECT * FROM JSON_TABLE(CONVERT({results} USING utf8mb4), '$[*]' COLUMNS (
		id CHAR(32) CHARACTER SET ascii PATH '$.id', seq BIGINT PATH '$.seq', attempts INT PATH '$.attempts',
		outcome VARCHAR(10) CHARACTER SET utf8mb4 PATH '$.outcome', retry_in BIGINT PATH '$.retry_in',
		took BIGINT PATH '$.took', node VARCHAR(1000) CHARACTER SET utf8mb4 PATH '$.node',
		error LONGTEXT CHARACTER SET utf8mb4 PATH '$.error', most_late BIGINT PATH '$.most_late')) AS r)
