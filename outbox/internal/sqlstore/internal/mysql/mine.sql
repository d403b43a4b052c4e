MOD(m.key_hash, {shards}) = {shard}
	AND m.`key` NOT IN ({keys})
	AND m.seq NOT IN ({ids})
	AND {free}
