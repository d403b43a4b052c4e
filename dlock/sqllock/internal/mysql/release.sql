-- Ends each lease that its token still holds. The row stays: it stores the fence and the last
-- holder. Locked rows are handled as in extend.sql. A success is stored in the row with slot -1, so
-- that row must be free, too.
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
	SET SESSION innodb_lock_wait_timeout = 1; -- the other leases wait, too

	attempt: LOOP BEGIN
		-- A slot of -1 means the one that the token has. It is read without a lock, because a lock
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
			-- Rows are read by their whole key: anything else would lock gaps, or all rows that
			-- were read.
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
			IF v_row IS NULL THEN -- there is none, or it is locked
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
