{bounded} DELETE {hint} i FROM (
	SELECT r.consumer, r.message_id FROM {inbox} AS r FORCE INDEX (received)
	WHERE r.received_at < UTC_TIMESTAMP(6) - INTERVAL {inbox_kept} MICROSECOND AND {inbox_kept} > 0
	ORDER BY r.received_at LIMIT {limit} FOR UPDATE SKIP LOCKED
) AS o STRAIGHT_JOIN {inbox} AS i FORCE INDEX (PRIMARY) ON i.consumer = o.consumer AND i.message_id = o.message_id;

SELECT ROW_COUNT();
