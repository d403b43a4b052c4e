UPDATE {layout} SET shards = {shards}, epoch = epoch + 1 WHERE id = 1 AND shards <> {shards}
