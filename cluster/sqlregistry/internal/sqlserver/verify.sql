DECLARE @columns nvarchar(max) = (
	SELECT c.name, CONCAT(t.name, CASE WHEN t.name IN ('varbinary', 'nvarchar') THEN CONCAT('(',
		CASE WHEN c.max_length = -1 THEN 'max'
			ELSE CONVERT(varchar(10), c.max_length / CASE t.name WHEN 'nvarchar' THEN 2 ELSE 1 END) END, ')')
		WHEN t.name = 'datetime2' THEN CONCAT('(', c.scale, ')') ELSE '' END) AS type
	FROM sys.columns AS c JOIN sys.types AS t ON t.user_type_id = c.user_type_id
		WHERE c.object_id = OBJECT_ID(@p1, N'U') FOR JSON PATH);
DECLARE @key nvarchar(max) = (
	SELECT STRING_AGG(c.name, ',') WITHIN GROUP (ORDER BY ic.key_ordinal)
	FROM sys.indexes AS i JOIN sys.index_columns AS ic ON ic.object_id = i.object_id AND ic.index_id = i.index_id
	JOIN sys.columns AS c ON c.object_id = i.object_id AND c.column_id = ic.column_id
	WHERE i.object_id = OBJECT_ID(@p1, N'U') AND i.is_primary_key = 1);
SELECT COALESCE(@columns, N'[]'), COALESCE(@key, N''),
	(SELECT COUNT(*) FROM sys.indexes WHERE object_id = OBJECT_ID(@p1, N'U') AND name IN (N'recent', N'named'));
