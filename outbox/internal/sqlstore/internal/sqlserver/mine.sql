m.key_hash % {shards} = {shard}
	AND m.[key] NOT IN (SELECT CONVERT(varbinary(200), k.value, 2) FROM OPENJSON({keys}) AS k)
	AND m.seq NOT IN (SELECT CONVERT(bigint, k.value) FROM OPENJSON({ids}) AS k)
	AND {free}
