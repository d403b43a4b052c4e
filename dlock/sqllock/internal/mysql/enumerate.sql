-- Returns the rows of a page, and says which of them are leases, of names with a prefix, that have
-- not ended or were released a short time ago. The prefix is no condition of the range, because a
-- page reads no more rows than its limit. It has no derived table, which would be written to disk.
-- To a session with EMPTY_STRING_IS_NULL an empty parameter is NULL.
SELECT COALESCE(slot >= 0 AND LEFT(resource_name, ?) = COALESCE(?, X'') AND (expires_at > UTC_TIMESTAMP(6)
		OR expires_at = TIMESTAMP'1970-01-01 00:00:00'
			AND ABS(TIMESTAMPDIFF(MICROSECOND, released_at, UTC_TIMESTAMP(6))) < ?), FALSE),
	resource_name, slot, CAST(COALESCE(host_name, X'') AS BINARY), COALESCE(process_id, 0),
	CAST(COALESCE(process_tag, X'') AS BINARY), fence,
	COALESCE(TIMESTAMPDIFF(MICROSECOND, acquired_at, UTC_TIMESTAMP(6)), 0),
	TIMESTAMPDIFF(MICROSECOND, renewed_at, UTC_TIMESTAMP(6)),
	COALESCE(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires_at), 0),
	IF(expires_at > TIMESTAMP'1970-01-01 00:00:00', NULL,
		TIMESTAMPDIFF(MICROSECOND, released_at, UTC_TIMESTAMP(6)))
FROM {table} FORCE INDEX (PRIMARY)
WHERE resource_name > COALESCE(?, X'') OR resource_name = COALESCE(?, X'') AND slot > ?
ORDER BY resource_name, slot LIMIT ?
