SELECT x.seq, x.fresh_key FROM {messages} AS x FORCE INDEX (fresh)
		WHERE x.fresh_key > {after} AND x.fresh_key NOT IN ({held}) AND x.fresh_key NOT IN ({keys})
		ORDER BY x.fresh_key, x.seq LIMIT {page_size}
