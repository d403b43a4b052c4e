{begin}
SELECT TOP ({limit}) {record} FROM {messages} AS m WHERE 1 = 1{where} ORDER BY m.seq DESC;
