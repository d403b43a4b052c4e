SELECT slot, CAST(COALESCE(host_name, X'') AS BINARY), COALESCE(process_id, 0),
	CAST(COALESCE(process_tag, X'') AS BINARY), fence,
	TIMESTAMPDIFF(MICROSECOND, acquired_at, UTC_TIMESTAMP(6)),
	TIMESTAMPDIFF(MICROSECOND, renewed_at, UTC_TIMESTAMP(6)), TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires_at)
FROM {table} WHERE resource_name = ? AND slot >= 0 AND expires_at > UTC_TIMESTAMP(6) ORDER BY slot
LIMIT 18446744073709551615 -- all, whatever sql_select_limit is
