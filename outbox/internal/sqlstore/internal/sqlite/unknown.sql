-- Topics whose messages wait: without a sink, or without a place. One step for each topic, however
-- many messages it has.
topics(topic) AS (
	SELECT min(m.topic) FROM {messages} AS m WHERE m.state = 'pending' AND {all} = 0
	UNION ALL
	SELECT (SELECT min(m.topic) FROM {messages} AS m WHERE m.state = 'pending' AND m.topic > t.topic)
	FROM topics AS t WHERE t.topic IS NOT NULL
),
unknown AS MATERIALIZED (
	SELECT t.topic FROM topics AS t
	WHERE t.topic IS NOT NULL AND t.topic NOT IN (SELECT k.value FROM json_each({topics_with_sinks}) AS k)
	UNION
	SELECT k.value FROM json_each({full_topics}) AS k
)
