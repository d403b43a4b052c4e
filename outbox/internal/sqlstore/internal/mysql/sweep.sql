{bounded} DELETE {hint} m FROM {messages} AS m JOIN (
	{old}
) AS o ON o.seq = m.seq;

SELECT ROW_COUNT();
