INSERT INTO {layout} (id, shards, epoch) SELECT 1, 1, 1 WHERE NOT EXISTS (SELECT 1 FROM {layout} AS l WHERE l.id = 1)
