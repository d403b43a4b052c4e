m.key_hash % {shards} = {shard}
	AND EXISTS (SELECT 1 FROM {layout} AS l WHERE l.id = 1 AND l.shards = {shards} AND l.epoch = {epoch})
	AND m.key NOT IN (SELECT k.value FROM json_each({keys}) AS k)
	AND m.seq NOT IN (SELECT k.value FROM json_each({ids}) AS k)
	AND {free}
