SELECT
	coalesce((SELECT type FROM main.sqlite_schema WHERE name = ?1 COLLATE NOCASE AND type IN ('table', 'view')), ''),
	(SELECT json_group_object(name, type) FROM pragma_table_info(?1, 'main')),
	coalesce((SELECT group_concat(name || ' ' || coll, ', ') FROM (
		SELECT x.name, x.coll FROM pragma_index_list(?1, 'main') AS i, pragma_index_xinfo(i.name, 'main') AS x
		WHERE i.origin = 'pk' AND x.key ORDER BY x.seqno)), ''),
	(SELECT count(*) FROM main.sqlite_schema WHERE type = 'index' AND name COLLATE NOCASE IN (?2, ?3)
		AND tbl_name = ?1 COLLATE NOCASE)
