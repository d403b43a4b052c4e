UPDATE {messages} AS m SET crashes = x.crashes
FROM (
	SELECT x.value ->> 'id' AS id, x.value ->> 'seq' AS seq, x.value ->> 'attempts' AS attempts,
		x.value ->> 'crashes' AS crashes
	FROM json_each({begun}) AS x
) AS x
WHERE m.seq = x.seq AND {padded_id} = x.id AND m.attempts = x.attempts AND m.state = 'pending'
