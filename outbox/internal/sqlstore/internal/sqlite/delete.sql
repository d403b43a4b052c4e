-- Foreign keys need not be enabled on this connection.
DELETE FROM {attempts} WHERE message IN (SELECT m.seq FROM {messages} AS m WHERE m.state = 'dead'{where});

DELETE FROM {messages} AS m WHERE m.state = 'dead'{where};

SELECT changes();
