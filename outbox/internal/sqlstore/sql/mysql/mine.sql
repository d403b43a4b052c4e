m.key_hash % {shards} = {shard}
	AND EXISTS (SELECT 1 FROM {layout} AS l WHERE l.id = 1 AND l.shards = {shards} AND l.epoch = {epoch})
	AND m.`key` NOT IN ({keys})
	AND m.seq NOT IN ({ids})
	AND {free}
