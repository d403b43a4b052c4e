{bounded} DELETE {hint} m FROM {messages} AS m WHERE m.state = 'dead'{where};

SELECT ROW_COUNT();
