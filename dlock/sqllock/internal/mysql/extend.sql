-- Extends each lease that its token still holds, and that was not revoked, to p_ttl from now. It
-- skips locked rows and tries them again after it has committed the others. Those still locked
-- after half of p_wait are reported as unknown.
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
	SET SESSION innodb_lock_wait_timeout = 1; -- the other leases wait, too

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
			-- Rows are read by their whole key: anything else would lock gaps, or all rows that
			-- were read. The read takes a lock because the snapshot may be older than a revocation.
			SET v_row = NULL, v_held = 0, v_revoked = NULL;
			SELECT slot, COALESCE(lock_id = v_token AND expires_at > UTC_TIMESTAMP(6), FALSE), revoked
				INTO v_row, v_held, v_revoked
			FROM {table} FORCE INDEX (PRIMARY) WHERE resource_name = v_name AND slot = v_slot FOR UPDATE SKIP LOCKED;
			IF v_row IS NULL THEN -- there is none, or it is locked
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
	SELECT CAST(CONCAT('[', SUBSTRING(v_answers, 2), ']') AS BINARY); -- whatever the character set of the connection is
END
