(SELECT MAX(q.seq) FROM {messages} AS q FORCE INDEX (requeued) WHERE q.is_requeued = 1)
