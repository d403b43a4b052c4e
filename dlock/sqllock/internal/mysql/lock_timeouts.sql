-- The caller closes the connection then: its settings are not set back.
	DECLARE EXIT HANDLER FOR SQLEXCEPTION
	BEGIN
		ROLLBACK AND NO CHAIN NO RELEASE;
		RESIGNAL;
	END;
	-- These know whole seconds only. They are for what cannot be skipped: a gap, or the table.
	SET SESSION innodb_lock_wait_timeout = GREATEST(1, p_wait DIV 1000), SESSION lock_wait_timeout = GREATEST(1, p_wait DIV 1000);
