-- tables: as JSON, name and columns with their types; indexes: their names as JSON. It answers
-- with what is wrong.
SELECT CASE WHEN OBJECT_ID(t.name, N'U') IS NULL THEN CONCAT(N'there is no table ', t.name)
	ELSE CONCAT(t.name, N' has no column ', k.[key] COLLATE DATABASE_DEFAULT, N' of type ', k.value) END
FROM OPENJSON({tables}) WITH (name nvarchar(400), columns nvarchar(max) AS JSON) AS t
	CROSS APPLY OPENJSON(t.columns) AS k
WHERE NOT EXISTS (SELECT 1 FROM sys.columns AS c JOIN sys.types AS y ON y.user_type_id = c.user_type_id
	WHERE c.object_id = OBJECT_ID(t.name, N'U') AND c.name = k.[key] COLLATE DATABASE_DEFAULT AND y.name = k.value)
UNION ALL
SELECT CONCAT(N'there is no index ', i.value)
FROM OPENJSON({indexes}) AS i
WHERE NOT EXISTS (SELECT 1 FROM sys.indexes AS x WHERE x.name = i.value AND x.object_id IN (
	SELECT OBJECT_ID(t.name, N'U') FROM OPENJSON({tables}) WITH (name nvarchar(400)) AS t));
