-- Looks at the rows of a page, and returns the leases among them, of names with a prefix, that have
-- not ended or were released a short time ago, and the last row. The prefix is no condition of the
-- range, because a page reads no more rows than its limit.
SELECT p.seen, p.live, p.resource_name, p.slot, CAST(COALESCE(p.host_name, X'') AS BINARY), COALESCE(p.process_id, 0),
	CAST(COALESCE(p.process_tag, X'') AS BINARY), p.fence,
	COALESCE(TIMESTAMPDIFF(MICROSECOND, p.acquired_at, UTC_TIMESTAMP(6)), 0),
	TIMESTAMPDIFF(MICROSECOND, p.renewed_at, UTC_TIMESTAMP(6)),
	COALESCE(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), p.expires_at), 0),
	IF(p.expires_at > TIMESTAMP'1970-01-01 00:00:00', NULL,
		TIMESTAMPDIFF(MICROSECOND, p.released_at, UTC_TIMESTAMP(6)))
FROM (
	SELECT l.*, ROW_NUMBER() OVER (ORDER BY l.resource_name, l.slot) AS nr, COUNT(*) OVER () AS seen,
		COALESCE(l.slot >= 0 AND LEFT(l.resource_name, LENGTH(?)) = ? AND (l.expires_at > UTC_TIMESTAMP(6)
			OR l.expires_at = TIMESTAMP'1970-01-01 00:00:00'
				AND ABS(TIMESTAMPDIFF(MICROSECOND, l.released_at, UTC_TIMESTAMP(6))) < ?), FALSE) AS live
	FROM (
		SELECT resource_name, slot, fence, acquired_at, renewed_at, expires_at, released_at, host_name, process_id,
			process_tag
		FROM {table} FORCE INDEX (PRIMARY) WHERE resource_name > ? OR resource_name = ? AND slot > ?
		ORDER BY resource_name, slot LIMIT ?
	) AS l
) AS p
WHERE p.live OR p.nr = p.seen ORDER BY p.nr
LIMIT 18446744073709551615 -- all, whatever sql_select_limit is
