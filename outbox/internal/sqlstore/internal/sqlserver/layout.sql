SELECT l.shards, l.epoch FROM {layout} AS l WHERE l.id = 1
