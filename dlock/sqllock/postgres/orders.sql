SELECT coalesce(json_agg(json_build_object(
	'n', resource_name, 'version', coalesce(orders_version, 0),
	'left', coalesce((extract(epoch FROM paused_until - clock_timestamp()) * 1000000)::bigint, 0), 'paused', coalesce(pause_order, ''),
	'limit', slot_limit, 'limited', coalesce(limit_order, ''),
	'at', triggered_at, 'ago', coalesce((extract(epoch FROM clock_timestamp()) * 1000000)::bigint - triggered_at, 0), 'trigger', coalesce(trigger_order, ''),
	'tick', tick, 'host', coalesce(host_name, ''), 'pid', coalesce(process_id, 0), 'id', coalesce(process_tag, '')
)), '[]')::text
FROM {table}
WHERE slot = -1 AND resource_name IN (SELECT json_array_elements_text($1::text::json))
