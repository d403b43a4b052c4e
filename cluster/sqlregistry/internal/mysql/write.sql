{bounded} INSERT {hint} INTO {table} (sort, id, lock_name, node_id, machine, pid, holder_id, kind, slot, slots, fence,
	grant_id, acquired_at, renewed_at, expires_at, released_at, happened_at, ttl, up_for, data, detail)
SELECT j_sort, j_id, j_name, j_node,
	j_machine, j_pid, j_holder, j_kind, j_slot,
	-- The answer is what mysql_insert_id returns: twice the time, and one more if the host has a
	-- row.
	IF(j_sort = 'host', LAST_INSERT_ID(2 * {micros}) * 0, 0) + j_slots,
	j_fence, j_grant,
	UTC_TIMESTAMP(6) - INTERVAL j_acquired MICROSECOND, UTC_TIMESTAMP(6) - INTERVAL j_renewed MICROSECOND,
	UTC_TIMESTAMP(6) - INTERVAL j_expires MICROSECOND, UTC_TIMESTAMP(6) - INTERVAL j_released MICROSECOND,
	UTC_TIMESTAMP(6) - INTERVAL j_happened MICROSECOND, j_ttl, j_up_for, j_data, j_detail
FROM JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (
	j_sort VARCHAR(8) CHARACTER SET utf8mb4 PATH '$.sort', j_id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.id',
	j_name VARCHAR(512) CHARACTER SET utf8mb4 PATH '$.lock_name',
	j_node VARCHAR(300) CHARACTER SET utf8mb4 PATH '$.node_id',
	j_machine VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.machine', j_pid BIGINT PATH '$.pid',
	j_holder VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.holder_id',
	j_kind VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.kind',
	j_slot INT PATH '$.slot', j_slots INT PATH '$.slots', j_fence BIGINT PATH '$.fence',
	j_grant VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.grant_id',
	j_acquired BIGINT PATH '$.acquired', j_renewed BIGINT PATH '$.renewed', j_expires BIGINT PATH '$.expires',
	j_released BIGINT PATH '$.released', j_happened BIGINT PATH '$.happened', j_ttl BIGINT PATH '$.ttl',
	j_up_for BIGINT PATH '$.up_for', j_data TEXT CHARACTER SET utf8mb4 PATH '$.data',
	j_detail LONGTEXT CHARACTER SET utf8mb4 PATH '$.detail')) AS x
WHERE j_sort <> 'host' OR j_detail IS NOT NULL
	OR EXISTS (SELECT 1 FROM {table} AS h WHERE h.sort = 'host' AND h.id = CAST(j_id AS BINARY))
ON DUPLICATE KEY UPDATE
	-- Each assignment sees those before it, so what is decided on the old values is kept in taken.
	taken = CASE sort
		WHEN 'host' THEN VALUES(up_for) >= up_for
		WHEN 'lease' THEN CASE
			WHEN CAST(machine AS BINARY) = CAST(VALUES(machine) AS BINARY) AND pid = VALUES(pid)
				AND CAST(holder_id AS BINARY) = CAST(VALUES(holder_id) AS BINARY)
				AND CAST(grant_id AS BINARY) = CAST(VALUES(grant_id) AS BINARY) THEN released_at IS NULL
			WHEN fence <> 0 AND VALUES(fence) <> 0 THEN VALUES(fence) > fence
			-- It is live and the row is over: the row may be a late record of an earlier holder.
			WHEN VALUES(released_at) IS NULL AND VALUES(expires_at) > UTC_TIMESTAMP(6)
				AND (released_at IS NOT NULL OR expires_at <= UTC_TIMESTAMP(6)) THEN 1
			ELSE VALUES(acquired_at) > acquired_at END
		ELSE 0 END, -- events and runs are written once
	lock_name = IF(taken, VALUES(lock_name), lock_name), node_id = IF(taken, VALUES(node_id), node_id),
	machine = IF(taken, VALUES(machine), machine), pid = IF(taken, VALUES(pid), pid),
	holder_id = IF(taken, VALUES(holder_id), holder_id), kind = IF(taken, VALUES(kind), kind),
	slot = IF(taken, VALUES(slot), slot), fence = IF(taken, VALUES(fence), fence),
	grant_id = IF(taken, VALUES(grant_id), grant_id), acquired_at = IF(taken, VALUES(acquired_at), acquired_at),
	renewed_at = IF(taken, VALUES(renewed_at), renewed_at), expires_at = IF(taken, VALUES(expires_at), expires_at),
	released_at = IF(taken, VALUES(released_at), released_at), ttl = IF(taken, VALUES(ttl), ttl),
	up_for = IF(taken, VALUES(up_for), up_for), data = IF(taken, VALUES(data), data),
	detail = IF(taken, COALESCE(VALUES(detail), detail), detail),
	slots = IF(sort = 'host' AND detail IS NOT NULL, LAST_INSERT_ID(2 * {micros} + 1) * 0, 0)
		+ IF(taken, VALUES(slots), slots)
