-- Foreign keys need not be enabled on this connection.
DELETE FROM {attempts} WHERE message IN ({old});

DELETE FROM {messages} WHERE seq IN ({old});

SELECT changes();
