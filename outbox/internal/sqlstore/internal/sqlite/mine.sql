m.key_hash % {shards} = {shard}
	AND m.key NOT IN (SELECT k.value FROM json_each({keys}) AS k)
	AND m.seq NOT IN (SELECT k.value FROM json_each({ids}) AS k)
	AND {free}
