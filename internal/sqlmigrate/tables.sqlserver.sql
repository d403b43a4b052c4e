-- Never run against a server. @p1 contains the names of the tables as JSON. The result is one row:
-- the catalog entry of each table, no encoding and no hidden rows.
SELECT (SELECT t.value AS name, CASE WHEN OBJECT_ID(t.value, N'U') IS NULL THEN N'' ELSE N'table' END AS kind,
		JSON_QUERY((SELECT N'{' + STRING_AGG(CAST(CONCAT(N'"', STRING_ESCAPE(c.name, 'json'), N'":"', y.name,
				CASE WHEN y.name IN ('varbinary', 'varchar', 'nvarchar', 'binary') THEN CONCAT('(',
						CASE WHEN c.max_length = -1 THEN 'max'
							ELSE CONVERT(varchar(10), c.max_length / CASE y.name WHEN 'nvarchar' THEN 2 ELSE 1 END)
							END, ')')
					WHEN y.name = 'datetime2' THEN CONCAT('(', c.scale, ')') ELSE '' END, N'"')
				AS nvarchar(max)), N',') + N'}'
			FROM sys.columns AS c JOIN sys.types AS y ON y.user_type_id = c.user_type_id
			WHERE c.object_id = OBJECT_ID(t.value, N'U'))) AS columns,
		JSON_QUERY((SELECT N'[' + STRING_AGG(CONCAT(N'"', STRING_ESCAPE(c.name, 'json'), N'"'), N',')
				WITHIN GROUP (ORDER BY k.key_ordinal) + N']'
			FROM sys.indexes AS x
				JOIN sys.index_columns AS k ON k.object_id = x.object_id AND k.index_id = x.index_id
				JOIN sys.columns AS c ON c.object_id = k.object_id AND c.column_id = k.column_id
			WHERE x.object_id = OBJECT_ID(t.value, N'U') AND x.is_primary_key = 1)) AS [key],
		JSON_QUERY((SELECT N'[' + STRING_AGG(CONCAT(N'"', STRING_ESCAPE(x.name, 'json'), N'"'), N',') + N']'
			FROM sys.indexes AS x
			WHERE x.object_id = OBJECT_ID(t.value, N'U') AND x.name IS NOT NULL AND x.is_primary_key = 0)) AS indexes
	FROM OPENJSON(@p1) AS t FOR JSON PATH),
	N'', N'';
