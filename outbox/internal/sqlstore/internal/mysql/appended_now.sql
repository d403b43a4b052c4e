-- The message may have been committed since the transaction began, whose other reads do not see it.
SELECT m.topic, m.`key`, HEX(m.payload) FROM {messages} AS m WHERE m.message_id = {id} LOCK IN SHARE MODE
