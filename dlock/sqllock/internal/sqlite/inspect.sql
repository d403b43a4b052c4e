SELECT json_group_array(json_object('n', resource_name, 'version', coalesce(overrides_version, 0),
	'left', coalesce(paused_until - {now}, 0), 'paused', coalesce(pause_origin, ''),
	'limit', slot_limit, 'limited', coalesce(limit_origin, ''),
	'at', triggered_at, 'ago', coalesce({now} - triggered_at, 0), 'trigger', coalesce(trigger_origin, ''),
	'tick', tick, 'host', coalesce(host_name, ''), 'pid', coalesce(process_id, 0), 'id', coalesce(process_tag, ''),
	'clock', {now}, 'value', CASE WHEN ?2 THEN coalesce(kept_value, '') ELSE '' END))
FROM {table} WHERE slot = -1 AND resource_name IN (SELECT value FROM json_each(?1))
