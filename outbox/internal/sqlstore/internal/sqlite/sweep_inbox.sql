DELETE FROM {inbox} WHERE (consumer, message_id) IN (
	SELECT i.consumer, i.message_id FROM {inbox} AS i
	WHERE i.received_at < {now} - {inbox_kept} AND {inbox_kept} > 0
	ORDER BY i.received_at LIMIT {limit});

SELECT changes();
