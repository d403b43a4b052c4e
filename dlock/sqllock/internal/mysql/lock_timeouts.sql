-- After an error the caller closes the connection, so the settings are not restored.
	DECLARE EXIT HANDLER FOR SQLEXCEPTION
	BEGIN
		ROLLBACK AND NO CHAIN NO RELEASE;
		RESIGNAL;
	END;
	-- These take whole seconds only. They bound the waits for what cannot be skipped: a gap, or the
	-- table.
	SET SESSION innodb_lock_wait_timeout = GREATEST(1, p_wait DIV 1000),
		SESSION lock_wait_timeout = GREATEST(1, p_wait DIV 1000);
