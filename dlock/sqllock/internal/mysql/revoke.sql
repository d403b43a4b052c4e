-- Marks the lease of a slot as revoked if it is held with that fence. The first revocation wins: a
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
