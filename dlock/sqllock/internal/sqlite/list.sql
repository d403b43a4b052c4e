SELECT json_group_array(json_object('slot', slot, 'host', coalesce(host_name, ''), 'pid', coalesce(process_id, 0),
	'id', coalesce(process_tag, ''),
	'fence', fence, 'held_for', now - acquired_at, 'renewed_ago', now - renewed_at, 'expires_in', expires_at - now))
FROM (
	SELECT *, {now} AS now FROM {table}
	WHERE resource_name = ?1 AND slot >= 0 AND expires_at >= {now}
	ORDER BY slot
)
