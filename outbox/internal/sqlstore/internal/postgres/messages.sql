SELECT {record} FROM {messages} AS m WHERE true{where} ORDER BY m.seq DESC LIMIT {limit}
