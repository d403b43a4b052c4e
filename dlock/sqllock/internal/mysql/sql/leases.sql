-- name: gap_locked
-- On MySQL, another transaction that has locked a range of rows may also have locked the gap of the
-- index "ends" into which the new end of this lease falls. Then the leases of this name cannot be
-- extended. Leases that the call has already changed stay changed, unless the server rolls them
-- back.
					DECLARE EXIT HANDLER FOR 1205
					BEGIN
						IF @@GLOBAL.innodb_rollback_on_timeout THEN
							RESIGNAL;
						END IF;
						SET v_held = -1, v_gaps = v_name;
					END;

-- name: retry_locked
-- Commits, then retries the leases whose rows were locked, for half of p_wait.
		CLOSE wanted;
		COMMIT AND NO CHAIN NO RELEASE;
		SET v_answers = CONCAT(v_answers, v_done_now);
		IF v_locked = '' THEN
			LEAVE attempt;
		END IF;
		IF TIMESTAMPDIFF(MICROSECOND, v_began, UTC_TIMESTAMP(6)) > p_wait * 500 THEN
			SET v_answers = CONCAT(v_answers, v_unknown);
			LEAVE attempt;
		END IF;
		SET v_grants = CONCAT('[', v_locked, ']');
		DO SLEEP(0.001 + 0.004 * RAND());

-- name: create_extend
-- Extends each lease to p_ttl from now if its token still holds it and it was not revoked. The
-- procedure skips locked rows and tries them again after it has committed the others. It reports
-- leases whose rows are still locked after half of p_wait as unknown.
CREATE PROCEDURE {extend}(
	p_ttl BIGINT,       -- microseconds
	p_grants LONGTEXT CHARACTER SET utf8mb4, -- [[index, name in hex, slot, token], ...]
	p_wait BIGINT       -- milliseconds to wait for a lock
)
MODIFIES SQL DATA
SQL SECURITY INVOKER
BEGIN
	DECLARE v_answers LONGTEXT CHARACTER SET utf8mb4 DEFAULT '';
	DECLARE v_grants LONGTEXT CHARACTER SET utf8mb4 DEFAULT p_grants;
	DECLARE v_done_now, v_locked, v_unknown LONGTEXT CHARACTER SET utf8mb4;
	DECLARE v_began DATETIME(6) DEFAULT UTC_TIMESTAMP(6);
	DECLARE v_i, v_slot, v_row, v_held, v_declared INT;
	DECLARE v_version BIGINT;
	DECLARE v_revoked TEXT CHARACTER SET utf8mb4;
	DECLARE v_name, v_last, v_gaps VARBINARY(544);
	DECLARE v_token VARBINARY(64);
	DECLARE v_clock, v_ends DATETIME(6);
	DECLARE v_done BOOLEAN;
	DECLARE v_row_wait INT DEFAULT @@SESSION.innodb_lock_wait_timeout;
	DECLARE v_table_wait INT DEFAULT @@SESSION.lock_wait_timeout;

	{lock_timeouts}
	SET SESSION innodb_lock_wait_timeout = 1; -- the other leases have to wait, too

	attempt: LOOP BEGIN
		DECLARE wanted CURSOR FOR
			SELECT w.i, UNHEX(w.n), w.s, w.t FROM JSON_TABLE(v_grants, '$[*]' COLUMNS (
				i INT PATH '$[0]',
				n VARCHAR(1088) CHARACTER SET utf8mb4 PATH '$[1]',
				s INT PATH '$[2]',
				t VARCHAR(64) CHARACTER SET utf8mb4 PATH '$[3]')) AS w
			ORDER BY 2, 3;
		DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_done = TRUE;
		{begin}
		SET v_done_now = '', v_locked = '', v_unknown = '', v_last = NULL, v_gaps = NULL,
			v_clock = UTC_TIMESTAMP(6), v_ends = v_clock + INTERVAL p_ttl MICROSECOND;
		OPEN wanted;
		next_lease: LOOP
			SET v_done = FALSE;
			FETCH wanted INTO v_i, v_name, v_slot, v_token;
			IF v_done THEN
				LEAVE next_lease;
			END IF;
			IF v_last IS NULL OR v_last <> v_name THEN
				SET v_last = v_name, v_declared = 0, v_version = 0;
				SELECT COALESCE(slots, 0), COALESCE(overrides_version, 0) INTO v_declared, v_version FROM {table}
					WHERE resource_name = v_name AND slot = -1;
			END IF;
			-- Read rows by their whole key: any other read would lock gaps, or all rows that it
			-- reads. The read takes a lock because the snapshot may be older than a revocation.
			SET v_row = NULL, v_held = 0, v_revoked = NULL;
			SELECT slot, COALESCE(lock_id = v_token AND expires_at > UTC_TIMESTAMP(6), FALSE), revoked
				INTO v_row, v_held, v_revoked
			FROM {table} FORCE INDEX (PRIMARY) WHERE resource_name = v_name AND slot = v_slot FOR UPDATE SKIP LOCKED;
			IF v_row IS NULL THEN -- the row is missing or locked
				SELECT -1 INTO v_held FROM {table} FORCE INDEX (PRIMARY)
				WHERE resource_name = v_name AND slot = v_slot AND lock_id = v_token AND expires_at > UTC_TIMESTAMP(6);
			ELSEIF v_held = 0 THEN
				SET v_revoked = NULL;
			ELSEIF v_revoked IS NOT NULL THEN
				SET v_held = 0;
			ELSEIF v_gaps = v_name THEN
				SET v_held = -1;
			ELSE
				BEGIN
					{gap_locked}
					UPDATE {table} FORCE INDEX (PRIMARY) SET expires_at = v_ends, renewed_at = v_clock
						WHERE resource_name = v_name AND slot = v_slot;
				END;
			END IF;
			IF v_held < 0 THEN
				SET v_locked = CONCAT(v_locked, IF(v_locked = '', '', ','), '[', v_i, ',"', HEX(v_name), '",', v_slot,
					',"', v_token, '"]'),
					v_unknown = CONCAT(v_unknown, ',[', v_i, ',-1,', v_declared, ',', v_version, ',null]');
			ELSE
				SET v_done_now = CONCAT(v_done_now, ',[', v_i, ',', v_held, ',', v_declared, ',', v_version, ',',
					COALESCE(JSON_QUOTE(v_revoked), 'null'), ']');
			END IF;
		END LOOP;
		{retry_locked}
	END; END LOOP;

	SET SESSION innodb_lock_wait_timeout = v_row_wait, SESSION lock_wait_timeout = v_table_wait;
	SELECT CAST(CONCAT('[', SUBSTRING(v_answers, 2), ']') AS BINARY); -- independent of the connection character set
END

-- name: extend
CALL {extend}(?, ?, ?)

-- name: create_release
-- Ends each lease that its token still holds. The row stays: it stores the fence and the last
-- holder. Locked rows are handled as in extend. A success is stored in the row with slot -1, so
-- that row must not be locked either.
CREATE PROCEDURE {release}(
	p_grants LONGTEXT CHARACTER SET utf8mb4, -- [[index, name in hex, slot or -1, token, 1 if the work ended well], ...]
	p_wait BIGINT       -- milliseconds to wait for a lock
)
MODIFIES SQL DATA
SQL SECURITY INVOKER
BEGIN
	DECLARE v_answers LONGTEXT CHARACTER SET utf8mb4 DEFAULT '';
	DECLARE v_grants LONGTEXT CHARACTER SET utf8mb4 DEFAULT p_grants;
	DECLARE v_done_now, v_locked, v_unknown LONGTEXT CHARACTER SET utf8mb4;
	DECLARE v_began DATETIME(6) DEFAULT UTC_TIMESTAMP(6);
	DECLARE v_i, v_slot, v_row, v_head, v_held, v_declared, v_succeeded INT;
	DECLARE v_name, v_last, v_gaps VARBINARY(544);
	DECLARE v_token VARBINARY(64);
	DECLARE v_done BOOLEAN;
	DECLARE v_row_wait INT DEFAULT @@SESSION.innodb_lock_wait_timeout;
	DECLARE v_table_wait INT DEFAULT @@SESSION.lock_wait_timeout;

	{lock_timeouts}
	SET SESSION innodb_lock_wait_timeout = 1; -- the other leases have to wait, too

	attempt: LOOP BEGIN
		-- A slot of -1 means the slot that the token holds. Read it without a lock, because a lock
		-- on the index would include its gaps.
		DECLARE wanted CURSOR FOR
			SELECT w.i, UNHEX(w.n), IF(w.s >= 0, w.s, (
				SELECT l.slot FROM {table} AS l FORCE INDEX (holders)
				WHERE l.lock_id = w.t AND l.resource_name = UNHEX(w.n) AND l.slot >= 0
					AND l.expires_at > UTC_TIMESTAMP(6) LIMIT 1)), w.t, w.w
			FROM JSON_TABLE(v_grants, '$[*]' COLUMNS (
				i INT PATH '$[0]',
				n VARCHAR(1088) CHARACTER SET utf8mb4 PATH '$[1]',
				s INT PATH '$[2]',
				t VARCHAR(64) CHARACTER SET utf8mb4 PATH '$[3]',
				w INT PATH '$[4]')) AS w
			ORDER BY 2, 3;
		DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_done = TRUE;
		{begin}
		SET v_done_now = '', v_locked = '', v_unknown = '', v_last = NULL, v_gaps = NULL;
		OPEN wanted;
		next_lease: LOOP
			SET v_done = FALSE;
			FETCH wanted INTO v_i, v_name, v_slot, v_token, v_succeeded;
			IF v_done THEN
				LEAVE next_lease;
			END IF;
			IF v_last IS NULL OR v_last <> v_name THEN
				SET v_last = v_name, v_declared = 0;
				SELECT COALESCE(slots, 0) INTO v_declared FROM {table} WHERE resource_name = v_name AND slot = -1;
			END IF;
			-- Read rows by their whole key: any other read would lock gaps, or all rows that it
			-- reads.
			SET v_row = NULL, v_held = 0, v_head = -1;
			SELECT slot, COALESCE(lock_id = v_token AND expires_at > UTC_TIMESTAMP(6), FALSE) INTO v_row, v_held
			FROM {table} FORCE INDEX (PRIMARY) WHERE resource_name = v_name AND slot = v_slot FOR UPDATE SKIP LOCKED;
			IF v_held = 1 AND v_succeeded = 1 THEN
				SET v_head = NULL;
				SELECT slot INTO v_head FROM {table} FORCE INDEX (PRIMARY) WHERE resource_name = v_name AND slot = -1
					FOR UPDATE SKIP LOCKED;
				IF v_head IS NULL THEN
					SELECT -2 INTO v_head FROM {table} FORCE INDEX (PRIMARY) WHERE resource_name = v_name AND slot = -1;
				END IF;
			END IF;
			IF v_row IS NULL THEN -- the row is missing or locked
				SELECT -1 INTO v_held FROM {table} FORCE INDEX (PRIMARY)
				WHERE resource_name = v_name AND slot = v_slot AND lock_id = v_token AND expires_at > UTC_TIMESTAMP(6);
			ELSEIF v_head = -2 OR v_held = 1 AND v_gaps = v_name THEN
				SET v_held = -1;
			ELSEIF v_held = 1 THEN
				BEGIN
					{gap_locked}
					UPDATE {table} FORCE INDEX (PRIMARY) SET expires_at = TIMESTAMP'1970-01-01 00:00:00',
						released_at = UTC_TIMESTAMP(6)
					WHERE resource_name = v_name AND slot = v_slot;
				END;
				IF v_held = 1 AND v_succeeded = 1 THEN
					UPDATE {table} FORCE INDEX (PRIMARY) SET succeeded_at = UTC_TIMESTAMP(6)
						WHERE resource_name = v_name AND slot = -1;
				END IF;
			END IF;
			IF v_held < 0 THEN
				SET v_locked = CONCAT(v_locked, IF(v_locked = '', '', ','), '[', v_i, ',"', HEX(v_name), '",', v_slot,
					',"', v_token, '",', v_succeeded, ']'),
					v_unknown = CONCAT(v_unknown, ',[', v_i, ',-1,', v_declared, ']');
			ELSE
				SET v_done_now = CONCAT(v_done_now, ',[', v_i, ',', v_held, ',', v_declared, ']');
			END IF;
		END LOOP;
		{retry_locked}
	END; END LOOP;

	SET SESSION innodb_lock_wait_timeout = v_row_wait, SESSION lock_wait_timeout = v_table_wait;
	SELECT CONCAT('[', SUBSTRING(v_answers, 2), ']');
END

-- name: release
CALL {release}(?, ?)

-- name: list
SELECT slot, CAST(COALESCE(host_name, X'') AS BINARY), COALESCE(process_id, 0),
	CAST(COALESCE(process_tag, X'') AS BINARY), fence,
	TIMESTAMPDIFF(MICROSECOND, acquired_at, UTC_TIMESTAMP(6)),
	TIMESTAMPDIFF(MICROSECOND, renewed_at, UTC_TIMESTAMP(6)), TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires_at)
FROM {table} WHERE resource_name = ? AND slot >= 0 AND expires_at > UTC_TIMESTAMP(6) ORDER BY slot
LIMIT 18446744073709551615 -- all rows, even if sql_select_limit is set

-- name: enumerate
-- Returns the rows of a page. The first column says whether the row is a lease of a name with the
-- prefix and has not ended or was released a short time ago. The prefix does not narrow the range,
-- because a page reads no more rows than its limit. The statement has no derived table, because
-- MySQL would write it to disk. In a session with EMPTY_STRING_IS_NULL, an empty parameter is NULL.
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

-- name: create_cleanup
-- Deletes the rows of one page that have not been used for p_retention, with one short transaction
-- per name. It skips a name if another session has locked one of its rows.
--
-- It deletes slots from the highest down, because a gap would hide a slot for a while. The first
-- cleanup that finds no slot of a name deletes its row with slot -1. A row whose fence is ahead of
-- the clock stays, and so do the slots below it.
CREATE PROCEDURE {cleanup}(
	p_after VARBINARY(544), p_after_slot INT, -- the row before the page
	p_limit INT,        -- rows in a page
	p_retention BIGINT, -- microseconds
	p_wait BIGINT       -- milliseconds to wait for a lock
)
MODIFIES SQL DATA
SQL SECURITY INVOKER
BEGIN
	DECLARE v_epoch DATETIME(6) DEFAULT TIMESTAMP'1970-01-01 00:00:00';
	DECLARE v_clock DATETIME(6) DEFAULT UTC_TIMESTAMP(6);
	DECLARE v_clock_us BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, v_epoch, v_clock);
	DECLARE v_before DATETIME(6) DEFAULT v_clock - INTERVAL p_retention MICROSECOND;
	DECLARE v_offset INT DEFAULT p_limit - 1;
	DECLARE v_name, v_last VARBINARY(544);
	DECLARE v_last_slot, v_head, v_slots, v_kept, v_there, v_ours INT;
	DECLARE v_deleted INT DEFAULT 0;
	DECLARE v_done BOOLEAN DEFAULT FALSE;
	DECLARE v_row_wait INT DEFAULT @@SESSION.innodb_lock_wait_timeout;
	DECLARE v_table_wait INT DEFAULT @@SESSION.lock_wait_timeout;

	-- The names in the page that have a row to delete.
	DECLARE idle CURSOR FOR
		SELECT DISTINCT resource_name FROM {table} AS l
		WHERE resource_name >= p_after AND (resource_name > p_after OR slot > p_after_slot)
			AND (v_last IS NULL OR resource_name < v_last OR resource_name = v_last AND slot <= v_last_slot)
			AND CASE WHEN slot >= 0
				THEN GREATEST(COALESCE(acquired_at, v_epoch), COALESCE(expires_at, v_epoch),
					COALESCE(released_at, v_epoch)) < v_before
					AND fence < v_clock_us
				ELSE GREATEST(COALESCE(tick, 0), COALESCE(asked_at, 0)) < v_clock_us - p_retention
					AND overrides_version IS NULL -- keep overrides
					AND NOT EXISTS (SELECT 1 FROM {table} AS s WHERE s.resource_name = l.resource_name AND s.slot >= 0)
				END
		ORDER BY resource_name;
	DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_done = TRUE;
	{lock_timeouts}

	-- For the isolation level, see acquire.sql.
	ROLLBACK AND NO CHAIN NO RELEASE;
	SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
	START TRANSACTION READ WRITE;
	SELECT resource_name, slot INTO v_last, v_last_slot FROM {table}
	WHERE resource_name >= p_after AND (resource_name > p_after OR slot > p_after_slot)
	ORDER BY resource_name, slot LIMIT v_offset, 1;
	OPEN idle;
	COMMIT AND NO CHAIN NO RELEASE;
	next_name: LOOP
		SET v_done = FALSE;
		FETCH idle INTO v_name;
		IF v_done THEN
			LEAVE next_name;
		END IF;
		SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
		START TRANSACTION READ WRITE;
		SET v_head = NULL;
		SELECT slot INTO v_head FROM {table} FORCE INDEX (PRIMARY) WHERE resource_name = v_name AND slot = -1
			FOR UPDATE SKIP LOCKED;
		SELECT COUNT(*),
			COALESCE(MAX(CASE WHEN GREATEST(COALESCE(acquired_at, v_epoch), COALESCE(expires_at, v_epoch),
				COALESCE(released_at, v_epoch)) >= v_before
			OR fence >= v_clock_us THEN slot END), -1)
		INTO v_slots, v_kept FROM {table} WHERE resource_name = v_name AND slot >= 0;
		SELECT COUNT(*) INTO v_there FROM {table} WHERE resource_name = v_name AND (slot > v_kept OR slot = -1);
		SELECT COUNT(*) INTO v_ours FROM {table} FORCE INDEX (PRIMARY) WHERE resource_name = v_name AND slot > v_kept
			AND slot >= 0 FOR UPDATE SKIP LOCKED;
		IF v_there <> v_ours + (v_head IS NOT NULL) THEN
			ROLLBACK AND NO CHAIN NO RELEASE;
			ITERATE next_name;
		END IF;
		IF v_slots > 0 THEN
			DELETE FROM {table} WHERE resource_name = v_name AND slot > v_kept;
		ELSE
			DELETE FROM {table} WHERE resource_name = v_name AND slot = -1
				AND GREATEST(COALESCE(tick, 0), COALESCE(asked_at, 0)) < v_clock_us - p_retention
				AND overrides_version IS NULL;
		END IF;
		SET v_deleted = v_deleted + ROW_COUNT();
		COMMIT AND NO CHAIN NO RELEASE;
	END LOOP;
	CLOSE idle;

	SET SESSION innodb_lock_wait_timeout = v_row_wait, SESSION lock_wait_timeout = v_table_wait;
	SELECT IF(v_last IS NULL, 0, p_limit), v_deleted, COALESCE(v_last, ''), COALESCE(v_last_slot, 0);
END

-- name: cleanup
CALL {cleanup}(?, ?, ?, ?, ?)
