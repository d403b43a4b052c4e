m.key_hash % {shards} = {shard}
	AND m.key NOT IN (SELECT k.value FROM pg_catalog.json_array_elements_text({keys}::json) AS k(value))
	AND m.seq NOT IN (SELECT k.value::bigint FROM pg_catalog.json_array_elements_text({ids}::json) AS k(value))
	AND {free}
