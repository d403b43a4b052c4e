{bounded} DELETE {hint} i FROM {inbox} AS i JOIN (
	SELECT r.consumer, r.message_id FROM {inbox} AS r FORCE INDEX (received)
	WHERE r.received_at < UTC_TIMESTAMP(6) - INTERVAL {inbox_kept} MICROSECOND AND {inbox_kept} > 0
	ORDER BY r.received_at LIMIT {limit}
) AS o ON o.consumer = i.consumer AND o.message_id = i.message_id;

SELECT ROW_COUNT();
