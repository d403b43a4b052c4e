-- Who appends the same message at the same time waits for this transaction. So does who appends
-- another one whose ID falls between the same two: HOLDLOCK locks the gap in which an ID that is
-- not there would be, and two transactions that append into two gaps each can deadlock (1205). A
-- plain INSERT would lock the row only, but its error ends a transaction with XACT_ABORT ON.
INSERT INTO {messages} (message_id, topic, [key], key_hash, payload, headers)
SELECT {id}, {topic}, {key}, {hash}, {payload}, {headers}
WHERE NOT EXISTS (SELECT 1 FROM {messages} AS m WITH (UPDLOCK, HOLDLOCK) WHERE m.message_id = {id})
