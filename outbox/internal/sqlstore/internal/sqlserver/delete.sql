{begin}
DELETE m FROM {messages} AS m WHERE m.state = 'dead'{where};
SELECT @@ROWCOUNT;
