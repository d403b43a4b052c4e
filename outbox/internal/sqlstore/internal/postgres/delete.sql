WITH deleted AS (DELETE FROM {messages} AS m WHERE m.state = 'dead'{where} RETURNING 1)
SELECT count(*) FROM deleted
