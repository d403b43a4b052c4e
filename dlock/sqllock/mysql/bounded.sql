-- The caller closes the connection then: its settings are not set back.
	DECLARE EXIT HANDLER FOR SQLEXCEPTION
	BEGIN
		ROLLBACK AND NO CHAIN NO RELEASE;
		RESIGNAL;
	END;
	SET SESSION innodb_lock_wait_timeout = (p_wait + 999) DIV 1000, SESSION lock_wait_timeout = (p_wait + 999) DIV 1000;
