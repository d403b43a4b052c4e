SELECT {record}, m.payload, m.headers, a.attempt, a.at, a.took, a.node, a.outcome, a.error
FROM {messages} AS m LEFT JOIN {attempts} AS a ON a.message = m.seq
WHERE m.message_id = {id}
ORDER BY a.attempt
