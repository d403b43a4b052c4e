-- A deadlock, or a row that changed after the snapshot (innodb_snapshot_isolation): start again.
		DECLARE EXIT HANDLER FOR 1213, 1020
		BEGIN
			ROLLBACK AND NO CHAIN NO RELEASE;
			IF TIMESTAMPDIFF(MICROSECOND, v_began, UTC_TIMESTAMP(6)) > p_wait * 1000 THEN
				RESIGNAL;
			END IF;
		END;
		-- For the isolation level see acquire.sql.
		ROLLBACK AND NO CHAIN NO RELEASE;
		SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
		START TRANSACTION READ WRITE;
