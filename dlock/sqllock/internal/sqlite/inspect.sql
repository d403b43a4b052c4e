SELECT json_group_array(json_object('n', resource_name, 'version', coalesce(overrides_version, 0),
	'pause_left', coalesce(paused_until - {now}, 0), 'pause_origin', coalesce(pause_origin, ''),
	'limit', slot_limit, 'limit_origin', coalesce(limit_origin, ''),
	'triggered_at', triggered_at, 'trigger_age', coalesce({now} - triggered_at, 0),
	'trigger_origin', coalesce(trigger_origin, ''),
	'tick', tick, 'host', coalesce(host_name, ''), 'pid', coalesce(process_id, 0), 'id', coalesce(process_tag, ''),
	'clock', {now}, 'value', CASE WHEN ?2 THEN coalesce(kept_value, '') ELSE '' END))
FROM {table} WHERE slot = -1 AND resource_name IN (SELECT value FROM json_each(?1))
