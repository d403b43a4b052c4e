-- Makes each lease that is still held by its token, and was not revoked, last p_ttl from now. Rows are locked in one order, so that two calls with the same leases
-- do not wait for each other.
CREATE PROCEDURE {extend}(
	p_ttl BIGINT,       -- microseconds
	p_grants LONGTEXT CHARACTER SET utf8mb4, -- [[index, name in hex, slot, token], ...]
	p_wait BIGINT       -- milliseconds to wait for a lock
)
MODIFIES SQL DATA
SQL SECURITY INVOKER
BEGIN
	DECLARE v_answers LONGTEXT CHARACTER SET utf8mb4;
	DECLARE v_began DATETIME(6) DEFAULT UTC_TIMESTAMP(6);
	DECLARE v_i, v_slot, v_held, v_declared INT;
	DECLARE v_version BIGINT;
	DECLARE v_revoked TEXT CHARACTER SET utf8mb4;
	DECLARE v_name, v_last VARBINARY(544);
	DECLARE v_token VARBINARY(64);
	DECLARE v_ends DATETIME(6);
	DECLARE v_done BOOLEAN;
	DECLARE v_row_wait INT DEFAULT @@SESSION.innodb_lock_wait_timeout;
	DECLARE v_table_wait INT DEFAULT @@SESSION.lock_wait_timeout;

	{bounded}

	attempt: LOOP BEGIN
		DECLARE wanted CURSOR FOR
			SELECT w.i, UNHEX(w.n), w.s, w.t FROM JSON_TABLE(p_grants, '$[*]' COLUMNS (
				i INT PATH '$[0]',
				n VARCHAR(1088) CHARACTER SET utf8mb4 PATH '$[1]',
				s INT PATH '$[2]',
				t VARCHAR(64) CHARACTER SET utf8mb4 PATH '$[3]')) AS w
			ORDER BY 2, 3;
		DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_done = TRUE;
		{transaction}
		SET v_answers = '', v_last = NULL, v_ends = UTC_TIMESTAMP(6) + INTERVAL p_ttl MICROSECOND;
		OPEN wanted;
		next_lease: LOOP
			SET v_done = FALSE;
			FETCH wanted INTO v_i, v_name, v_slot, v_token;
			IF v_done THEN
				LEAVE next_lease;
			END IF;
			-- A row is found by its whole key: anything else would lock the gaps around it, or all that was looked at. It always changes: then
			-- ROW_COUNT() does not depend on how the client wants rows to be counted.
			UPDATE {table} FORCE INDEX (PRIMARY) SET expires_at = IF(expires_at = v_ends, v_ends + INTERVAL 1 MICROSECOND, v_ends)
			WHERE resource_name = v_name AND slot = v_slot AND lock_id = v_token AND revoked IS NULL AND expires_at > UTC_TIMESTAMP(6);
			SET v_held = ROW_COUNT(), v_revoked = NULL;
			IF v_held = 0 THEN -- with a lock, because the snapshot may be older than an order
				SELECT revoked INTO v_revoked FROM {table} FORCE INDEX (PRIMARY)
				WHERE resource_name = v_name AND slot = v_slot AND lock_id = v_token AND expires_at > UTC_TIMESTAMP(6) FOR UPDATE;
			END IF;
			IF v_last IS NULL OR v_last <> v_name THEN
				SET v_last = v_name, v_declared = 0, v_version = 0;
				SELECT COALESCE(slots, 0), COALESCE(orders_version, 0) INTO v_declared, v_version FROM {table} WHERE resource_name = v_name AND slot = -1;
			END IF;
			SET v_answers = CONCAT(v_answers, IF(v_answers = '', '', ','), '[', v_i, ',', v_held, ',', v_declared, ',', v_version, ',',
				COALESCE(JSON_QUOTE(v_revoked), 'null'), ']');
		END LOOP;
		CLOSE wanted;
		COMMIT AND NO CHAIN NO RELEASE;
		LEAVE attempt;
	END; END LOOP;

	SET SESSION innodb_lock_wait_timeout = v_row_wait, SESSION lock_wait_timeout = v_table_wait;
	SELECT CAST(CONCAT('[', v_answers, ']') AS BINARY); -- whatever the character set of the connection is
END
