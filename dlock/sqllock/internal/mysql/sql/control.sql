-- name: create_update
-- Changes the overrides of a name. NULL leaves a value unchanged.
CREATE PROCEDURE {update}(
	p_resource VARBINARY(544),
	p_pause BIGINT,       -- microseconds from now; 0: resume
	p_pause_origin BLOB,   -- who changed it, and why
	p_limit INT,          -- slots; -1: as grants declare
	p_limit_origin BLOB,
	p_trigger_origin BLOB, -- requests a run
	p_value MEDIUMBLOB,
	p_if_version BIGINT,   -- apply all changes, with the value, only if the name has this version; NULL: no value
	p_wait BIGINT         -- milliseconds to wait for a lock
)
MODIFIES SQL DATA
SQL SECURITY INVOKER
BEGIN
	DECLARE v_began DATETIME(6) DEFAULT UTC_TIMESTAMP(6);
	DECLARE v_clock DATETIME(6);
	DECLARE v_clock_us BIGINT;
	DECLARE v_version BIGINT;
	DECLARE v_done INT;
	DECLARE v_row_wait INT DEFAULT @@SESSION.innodb_lock_wait_timeout;
	DECLARE v_table_wait INT DEFAULT @@SESSION.lock_wait_timeout;

	{lock_timeouts}

	attempt: LOOP BEGIN
		{begin}
		-- While this row is locked, no host can grant a slot. Later grants see the update.
		INSERT INTO {table} (resource_name, slot) VALUES (p_resource, -1)
			ON DUPLICATE KEY UPDATE overrides_version = overrides_version;
		SET v_clock = UTC_TIMESTAMP(6),
			v_clock_us = TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', v_clock);
		SELECT COALESCE(overrides_version, 0) INTO v_version FROM {table} FORCE INDEX (PRIMARY)
		WHERE resource_name = p_resource AND slot = -1 FOR UPDATE;
		SET v_done = p_if_version IS NULL OR p_if_version = v_version;
		-- MySQL assigns from left to right, so later expressions see the new values.
		UPDATE {table} FORCE INDEX (PRIMARY) SET
			overrides_version = GREATEST(COALESCE(overrides_version, 0) + 1, v_clock_us),
			pause_origin = CASE
				WHEN p_pause > 0 OR p_pause = 0 AND paused_until > v_clock THEN CONVERT(p_pause_origin USING utf8mb4)
				WHEN slot_limit = 0 AND p_limit <> 0
					AND COALESCE(paused_until < v_clock, TRUE) THEN CONVERT(p_limit_origin USING utf8mb4)
				ELSE pause_origin
			END,
			resumed_at = CASE
				WHEN p_pause > 0 THEN resumed_at
				WHEN p_pause = 0 AND paused_until > v_clock THEN v_clock
				-- ticks under a limit of 0 were not missed
				WHEN slot_limit = 0 AND p_limit <> 0 AND COALESCE(paused_until < v_clock, TRUE) THEN v_clock
				ELSE resumed_at
			END,
			paused_until = CASE
				WHEN p_pause > 0 THEN v_clock + INTERVAL p_pause MICROSECOND
				-- not the clock: if it is ahead and is set back, that would be a pause again
				WHEN p_pause = 0 AND paused_until > v_clock THEN NULL
				ELSE paused_until
			END,
			slot_limit = IF(p_limit IS NULL, slot_limit, NULLIF(p_limit, -1)),
			limit_origin = IF(p_limit IS NULL, limit_origin, CONVERT(p_limit_origin USING utf8mb4)),
			triggered_at = IF(p_trigger_origin IS NULL, triggered_at,
				GREATEST(v_clock_us, COALESCE(triggered_at + 1, 0))),
			trigger_origin = IF(p_trigger_origin IS NULL, trigger_origin, CONVERT(p_trigger_origin USING utf8mb4)),
			kept_value = IF(p_if_version IS NULL, kept_value, CONVERT(p_value USING utf8mb4))
		WHERE resource_name = p_resource AND slot = -1 AND v_done;
		COMMIT AND NO CHAIN NO RELEASE;
		LEAVE attempt;
	END; END LOOP;

	SET SESSION innodb_lock_wait_timeout = v_row_wait, SESSION lock_wait_timeout = v_table_wait;
	SELECT v_done;
END

-- name: update
CALL {update}(?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: inspect
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
LIMIT 18446744073709551615 -- all rows, even if sql_select_limit is set

-- name: create_revoke
-- Marks the lease of a slot as revoked if it is held with that fence. The first revocation stays; a
-- second one changes nothing.
CREATE PROCEDURE {revoke}(
	p_resource VARBINARY(544),
	p_slot INT,
	p_fence BIGINT,
	p_origin BLOB,
	p_wait BIGINT -- milliseconds to wait for a lock
)
MODIFIES SQL DATA
SQL SECURITY INVOKER
BEGIN
	DECLARE v_began DATETIME(6) DEFAULT UTC_TIMESTAMP(6);
	DECLARE v_held INT;
	DECLARE v_row_wait INT DEFAULT @@SESSION.innodb_lock_wait_timeout;
	DECLARE v_table_wait INT DEFAULT @@SESSION.lock_wait_timeout;

	{lock_timeouts}

	attempt: LOOP BEGIN
		{begin}
		UPDATE {table} FORCE INDEX (PRIMARY) SET revoked = CONVERT(p_origin USING utf8mb4)
		WHERE resource_name = p_resource AND slot = p_slot AND fence = p_fence AND revoked IS NULL
			AND expires_at > UTC_TIMESTAMP(6);
		SET v_held = ROW_COUNT();
		IF v_held = 0 THEN
			SELECT COUNT(*) INTO v_held FROM {table}
			WHERE resource_name = p_resource AND slot = p_slot AND fence = p_fence AND revoked IS NOT NULL
				AND expires_at > UTC_TIMESTAMP(6);
		END IF;
		COMMIT AND NO CHAIN NO RELEASE;
		LEAVE attempt;
	END; END LOOP;

	SET SESSION innodb_lock_wait_timeout = v_row_wait, SESSION lock_wait_timeout = v_table_wait;
	SELECT v_held;
END

-- name: revoke
CALL {revoke}(?, ?, ?, ?, ?)
