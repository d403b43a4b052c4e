SELECT DISTINCT t.pending_topic AS topic FROM {messages} AS t FORCE INDEX (topics)
		WHERE t.pending_topic IS NOT NULL AND (t.pending_topic IN ({full_topics})
			OR t.pending_topic NOT IN ({topics_with_sinks}) AND {all} = 0)
