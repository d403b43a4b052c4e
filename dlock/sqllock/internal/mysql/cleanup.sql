-- Deletes the rows of one page that have not been used for p_retention, one name and one short
-- transaction at a time. It skips a name if another session has one of its rows locked.
--
-- Slots are deleted from the highest one down, because a gap would hide a slot for a while. The row
-- with slot -1 is deleted by the first cleanup that finds no slot of that name. A row whose fence
-- is ahead of the clock stays, and so do the slots below it.
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

	-- The names in the page that have a row which may be deleted.
	DECLARE idle CURSOR FOR
		SELECT DISTINCT resource_name FROM {table} AS l
		WHERE resource_name >= p_after AND (resource_name > p_after OR slot > p_after_slot)
			AND (v_last IS NULL OR resource_name < v_last OR resource_name = v_last AND slot <= v_last_slot)
			AND CASE WHEN slot >= 0
				THEN GREATEST(COALESCE(acquired_at, v_epoch), COALESCE(expires_at, v_epoch),
					COALESCE(released_at, v_epoch)) < v_before
					AND fence < v_clock_us
				ELSE GREATEST(COALESCE(tick, 0), COALESCE(asked_at, 0)) < v_clock_us - p_retention
					AND overrides_version IS NULL -- overrides stay
					AND NOT EXISTS (SELECT 1 FROM {table} AS s WHERE s.resource_name = l.resource_name AND s.slot >= 0)
				END
		ORDER BY resource_name;
	DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_done = TRUE;
	{lock_timeouts}

	-- For the isolation level see acquire.sql.
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
