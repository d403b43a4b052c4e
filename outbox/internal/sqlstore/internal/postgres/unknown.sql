now AS MATERIALIZED (SELECT pg_catalog.clock_timestamp() AS at),
-- Topics whose messages wait: without a sink, or without a place. One step for each topic, however
-- many messages it has.
topics(topic) AS (
	(SELECT m.topic FROM {messages} AS m WHERE m.state = 'pending' AND {all} = 0 ORDER BY m.topic LIMIT 1)
	UNION ALL
	SELECT (SELECT m.topic FROM {messages} AS m WHERE m.state = 'pending' AND m.topic > t.topic
		ORDER BY m.topic LIMIT 1)
	FROM topics AS t WHERE t.topic IS NOT NULL
),
unknown AS MATERIALIZED (
	SELECT t.topic FROM topics AS t
	WHERE t.topic IS NOT NULL
		AND t.topic NOT IN (
			SELECT k.value FROM pg_catalog.json_array_elements_text({topics_with_sinks}::json) AS k(value))
	UNION
	SELECT k.value COLLATE "C" FROM pg_catalog.json_array_elements_text({full_topics}::json) AS k(value)
)
