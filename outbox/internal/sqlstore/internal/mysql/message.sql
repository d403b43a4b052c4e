{bounded} SELECT {hint} {record}, m.payload, CAST(m.headers AS BINARY),
	a.attempt, TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', a.at), a.took, CAST(a.node AS BINARY),
	a.outcome, CAST(a.error AS BINARY)
FROM {messages} AS m LEFT JOIN {attempts} AS a ON a.message = m.seq
WHERE m.message_id = {id}
ORDER BY a.attempt
LIMIT 18446744073709551615
