SELECT coalesce(json_agg(json_build_object(
	'slot', slot, 'host', coalesce(host_name, ''), 'pid', coalesce(process_id, 0), 'id', coalesce(process_tag, ''), 'fence', fence,
	'since', (extract(epoch FROM clock_timestamp() - acquired_at) * 1000000)::bigint,
	'ends', (extract(epoch FROM expires_at - clock_timestamp()) * 1000000)::bigint
) ORDER BY slot), '[]')::text
FROM {table}
WHERE resource_name = $1::text AND slot >= 0 AND expires_at > clock_timestamp()
