-- ?1 contains the names of the tables as JSON. The result is one row: the catalog entry of each
-- table, no encoding and no hidden rows. A key column with another collation would treat different
-- names as equal.
SELECT json_group_array(json_object('name', t.value,
		'kind', coalesce((SELECT s.type FROM main.sqlite_schema AS s
			WHERE s.name = t.value COLLATE NOCASE AND s.type = 'table'), ''),
		'columns', (SELECT json_group_object(lower(c.name), c.type) FROM pragma_table_xinfo(t.value, 'main') AS c),
		'key', (SELECT json_group_array(k.name) FROM (
			SELECT lower(c.name) || coalesce((
				SELECT ' COLLATE ' || x.coll
				FROM pragma_index_list(t.value, 'main') AS i, pragma_index_xinfo(i.name, 'main') AS x
				WHERE i.origin = 'pk' AND x.key AND x.cid = c.cid AND x.coll <> 'BINARY'), '') AS name
			FROM pragma_table_info(t.value, 'main') AS c WHERE c.pk > 0 ORDER BY c.pk) AS k),
		'indexes', (SELECT json_group_array(s.name) FROM main.sqlite_schema AS s
			WHERE s.type = 'index' AND s.tbl_name = t.value COLLATE NOCASE))),
	'', ''
FROM json_each(?1) AS t
