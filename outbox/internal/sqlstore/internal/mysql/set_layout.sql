{bounded} UPDATE {hint} {layout} SET shards = {shards}, epoch = epoch + 1 WHERE id = 1 AND shards <> {shards}
