{bounded} DELETE {hint} m FROM (
	{old}
) AS o STRAIGHT_JOIN {messages} AS m FORCE INDEX (PRIMARY) ON m.seq = o.seq;

SELECT ROW_COUNT();
