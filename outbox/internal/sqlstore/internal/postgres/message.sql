SELECT {record}, m.payload, m.headers,
	a.attempt, (extract(epoch FROM a.at) * 1000000)::bigint, a.took, a.node, a.outcome, a.error
FROM {messages} AS m LEFT JOIN {attempts} AS a ON a.message = m.seq
WHERE m.message_id = {id}
ORDER BY a.attempt
