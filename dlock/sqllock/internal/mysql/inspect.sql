SELECT l.resource_name, COALESCE(l.overrides_version, 0),
	COALESCE(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), l.paused_until), 0),
	CAST(COALESCE(l.pause_origin, X'') AS BINARY),
	l.slot_limit, CAST(COALESCE(l.limit_origin, X'') AS BINARY),
	l.triggered_at,
	COALESCE(TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - l.triggered_at, 0),
	CAST(COALESCE(l.trigger_origin, X'') AS BINARY),
	l.tick, CAST(COALESCE(l.host_name, X'') AS BINARY), COALESCE(l.process_id, 0),
	CAST(COALESCE(l.process_tag, X'') AS BINARY),
	TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6)),
	IF(?, CAST(COALESCE(l.kept_value, X'') AS BINARY), X'')
FROM JSON_TABLE(?, '$[*]' COLUMNS (n VARCHAR(1088) CHARACTER SET utf8mb4 PATH '$')) AS w
STRAIGHT_JOIN {table} AS l FORCE INDEX (PRIMARY) ON l.resource_name = UNHEX(w.n) AND l.slot = -1
LIMIT 18446744073709551615 -- all, whatever sql_select_limit is
