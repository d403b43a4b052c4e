-- name: lock_timeouts
-- After an error the caller closes the connection, so the procedure does not restore the settings.
	DECLARE EXIT HANDLER FOR SQLEXCEPTION
	BEGIN
		ROLLBACK AND NO CHAIN NO RELEASE;
		RESIGNAL;
	END;
	-- These settings take whole seconds only. They bound the waits for locks that SKIP LOCKED
	-- cannot skip: on a gap, or on the table.
	SET SESSION innodb_lock_wait_timeout = GREATEST(1, p_wait DIV 1000),
		SESSION lock_wait_timeout = GREATEST(1, p_wait DIV 1000);

-- name: begin
-- Start again after a deadlock, or if a row changed after the snapshot (innodb_snapshot_isolation).
		DECLARE EXIT HANDLER FOR 1213, 1020
		BEGIN
			ROLLBACK AND NO CHAIN NO RELEASE;
			IF TIMESTAMPDIFF(MICROSECOND, v_began, UTC_TIMESTAMP(6)) > p_wait * 1000 THEN
				RESIGNAL;
			END IF;
		END;
		-- For the isolation level, see acquire.sql.
		ROLLBACK AND NO CHAIN NO RELEASE;
		SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
		START TRANSACTION READ WRITE;

-- name: create_acquire
-- Takes a free slot, a start of the tick if the request has one, and a slot of each further
-- semaphore, in one transaction.
--
-- A refusal comes from one snapshot and takes no lock. It writes only to make a schedule known, or
-- to shorten a lease from a time when the clock was ahead. If a slot looks free, the procedure
-- locks the row with slot -1 (of each semaphore) until it commits and reads everything again. So
-- grants of one name are serial, and no request is refused while a slot is free.
--
-- The procedure skips locked rows (SKIP LOCKED) and tries them again a little later: lock waits in
-- the server time out in whole seconds, which is longer than most callers wait. So a row that
-- another session keeps locked makes only that one slot unavailable.
--
-- It is a procedure because a client that ran the transaction itself could stop in the middle of it
-- and keep its locks.
CREATE PROCEDURE {acquire}(
	p_resource VARBINARY(544), -- binary, like all text, so the connection character set does not matter
	p_slots INT,               -- 0: a mutex
	p_token VARBINARY(64),
	p_ttl BIGINT,              -- microseconds
	p_tick BIGINT,             -- microseconds since 1970, or NULL
	p_max INT,                 -- allowed starts of this tick
	p_missed BIGINT,           -- when this tick came due, if it was missed, microseconds since 1970, or NULL
	p_schedule BIGINT,         -- schedule of this tick
	p_ahead BIGINT,            -- microseconds that a tick may be ahead of the clock
	p_host VARBINARY(1020), p_pid BIGINT, p_tag VARBINARY(1020),
	p_wait BIGINT,             -- milliseconds to wait for a lock
	p_also LONGTEXT CHARACTER SET utf8mb4, -- the further semaphores: [[name in hex, slots, rate, per], ...], or NULL
	p_delay BIGINT             -- microseconds since the last lease ended, or NULL. With a delay, p_tick is NULL
)
MODIFIES SQL DATA
SQL SECURITY INVOKER
BEGIN
	DECLARE v_random DOUBLE DEFAULT RAND();
	DECLARE v_epoch DATETIME(6) DEFAULT TIMESTAMP'1970-01-01 00:00:00';
	DECLARE v_began DATETIME(6) DEFAULT UTC_TIMESTAMP(6);
	DECLARE v_lock BOOLEAN DEFAULT FALSE;
	DECLARE v_busy VARCHAR(128); -- which rows were locked
	DECLARE v_format BIGINT;
	DECLARE v_refusal VARCHAR(128);
	DECLARE v_head, v_n, v_low, v_high, v_starts, v_declared, v_limit, v_held, v_again, v_first, v_last, v_present,
		v_free, v_row, v_passed INT;
	DECLARE v_tick, v_schedule, v_asked, v_asked_at, v_version, v_clock_us, v_fence, v_again_fence, v_pid,
		v_tick_pid BIGINT;
	DECLARE v_clock, v_over, v_ends, v_acquired, v_expires, v_succeeded, v_paused, v_resumed DATETIME(6);
	DECLARE v_previous_expired BOOLEAN;
	DECLARE v_host, v_tag, v_tick_host, v_tick_tag VARBINARY(1020);
	DECLARE v_pause_origin, v_limit_origin BLOB;
	DECLARE v_reason VARCHAR(16);
	-- The further semaphores, and the values of the current one.
	DECLARE v_others INT DEFAULT COALESCE(JSON_LENGTH(p_also), 0);
	DECLARE v_also LONGTEXT CHARACTER SET utf8mb4 DEFAULT '';
	DECLARE v_i, v_size, v_o_n, v_o_declared, v_o_limit, v_o_slot, v_o_last INT;
	DECLARE v_o_version, v_o_fence BIGINT;
	DECLARE v_o_expires, v_o_paused DATETIME(6);
	DECLARE v_o_pause_origin, v_o_limit_origin, v_o_origin BLOB;
	DECLARE v_o_previous_expired BOOLEAN;
	-- v_log has the starts that count towards its rate (see package startlog). v_believed is v_log
	-- if these starts lie ahead of the clock.
	DECLARE v_log, v_believed VARBINARY(1664);
	DECLARE v_records, v_record INT;
	DECLARE v_rate, v_per, v_counted, v_end, v_bucket, v_rate_wait BIGINT;
	DECLARE v_name, v_create VARBINARY(544); -- v_create: the name whose row with slot -1 must be created
	DECLARE v_row_wait INT DEFAULT @@SESSION.innodb_lock_wait_timeout;
	DECLARE v_table_wait INT DEFAULT @@SESSION.lock_wait_timeout;

	{lock_timeouts}

	attempt: LOOP BEGIN
		-- Start again after a duplicate row or a deadlock, or if a row changed after the snapshot
		-- (innodb_snapshot_isolation).
		DECLARE EXIT HANDLER FOR 1062, 1213, 1020 ROLLBACK AND NO CHAIN NO RELEASE;

		-- Other isolation levels take a snapshot per statement, lock the rows that they read, or
		-- cannot be used with a statement-based binary log. The level cannot be set within a
		-- transaction. With autocommit = 0 a transaction may be open, so end it first.
		ROLLBACK AND NO CHAIN NO RELEASE;
		IF TIMESTAMPDIFF(MICROSECOND, v_began, UTC_TIMESTAMP(6)) > p_wait * 1000 THEN
			SET v_busy = COALESCE(v_busy, 'other sessions were faster each time');
			SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1205, MESSAGE_TEXT = v_busy;
		END IF;
		IF v_busy IS NOT NULL THEN -- a request that has waited longer tries more often
			DO SLEEP(0.001 + 0.005 * RAND()
				* (1 - LEAST(1, TIMESTAMPDIFF(MICROSECOND, v_began, UTC_TIMESTAMP(6)) / (p_wait * 1000))));
			SET v_busy = NULL;
		END IF;
		SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
		START TRANSACTION READ WRITE;
		IF v_create IS NOT NULL THEN -- create the row so that it can be locked
			SET v_name = v_create, v_create = NULL; -- reset first: the next attempt must not insert it again
			INSERT INTO {table} (resource_name, slot) VALUES (v_name, -1);
			COMMIT AND NO CHAIN NO RELEASE;
			ITERATE attempt;
		END IF;

		-- 1. read: everything that the decision depends on. The first read without a lock takes the
		-- snapshot. By then the lock is held.
		SET v_head = NULL, v_tick = NULL, v_starts = NULL, v_schedule = NULL, v_asked = NULL, v_asked_at = NULL,
			v_declared = NULL, v_succeeded = NULL, v_previous_expired = FALSE, v_again = NULL, v_first = NULL,
			v_version = NULL, v_paused = NULL, v_resumed = NULL, v_limit = NULL,
			v_tick_host = NULL, v_tick_pid = NULL, v_tick_tag = NULL;
		IF v_lock THEN
			SELECT slot, tick, tick_starts, tick_schedule, asked_schedule, asked_at, slots, succeeded_at,
				overrides_version, paused_until, resumed_at, pause_origin, slot_limit, limit_origin,
				COALESCE(host_name, ''), COALESCE(process_id, 0), COALESCE(process_tag, '')
			INTO v_head, v_tick, v_starts, v_schedule, v_asked, v_asked_at, v_declared, v_succeeded,
				v_version, v_paused, v_resumed, v_pause_origin, v_limit, v_limit_origin,
				v_tick_host, v_tick_pid, v_tick_tag
			FROM {table} WHERE resource_name = p_resource AND slot = -1 FOR UPDATE SKIP LOCKED;
			IF v_head IS NULL THEN
				SELECT slot INTO v_head FROM {table} WHERE resource_name = p_resource AND slot = -1;
				IF v_head IS NULL THEN -- the row was deleted, so the SELECT has locked the gap
					SET v_lock = FALSE;
				ELSE
					SET v_busy = 'the row of the name, with slot -1, was locked for too long';
				END IF;
				ITERATE attempt;
			END IF;
			SET v_i = 0;
			WHILE v_i < v_others DO
				SET v_name = UNHEX(JSON_UNQUOTE(JSON_EXTRACT(p_also, CONCAT('$[', v_i, '][0]')))), v_row = NULL;
				SELECT slot INTO v_row FROM {table} WHERE resource_name = v_name AND slot = -1 FOR UPDATE SKIP LOCKED;
				IF v_row IS NULL THEN
					SELECT slot INTO v_row FROM {table} WHERE resource_name = v_name AND slot = -1;
					IF v_row IS NULL THEN
						SET v_create = v_name;
					ELSE
						SET v_busy = 'the row of a further semaphore, with slot -1, was locked for too long';
					END IF;
					ITERATE attempt;
				END IF;
				SET v_i = v_i + 1;
			END WHILE;
		ELSE
			SELECT slot, tick, tick_starts, tick_schedule, asked_schedule, asked_at, slots, succeeded_at,
				overrides_version, paused_until, resumed_at, pause_origin, slot_limit, limit_origin,
				COALESCE(host_name, ''), COALESCE(process_id, 0), COALESCE(process_tag, '')
			INTO v_head, v_tick, v_starts, v_schedule, v_asked, v_asked_at, v_declared, v_succeeded,
				v_version, v_paused, v_resumed, v_pause_origin, v_limit, v_limit_origin,
				v_tick_host, v_tick_pid, v_tick_tag
			FROM {table} WHERE resource_name = p_resource AND slot = -1;
		END IF;
		-- Each request looks for deleted rows in only one window of slots.
		SET v_n = IF(v_limit > 0, v_limit, GREATEST(p_slots, 1)), v_low = FLOOR(v_random * ((v_n + 15) DIV 16)) * 16,
			v_high = LEAST(v_low + 16, v_n);
		-- A later version may use the table in a way that this version would misread: see
		-- tableFormat.
		SELECT overrides_version INTO v_format FROM {table} WHERE resource_name = '' AND slot = -1;
		IF v_format > 1 THEN
			SET v_refusal = CONCAT('a later version of tickslot uses the table, with format ', v_format,
				', and this one knows format 1: update this host');
			SIGNAL SQLSTATE '42000' SET MESSAGE_TEXT = v_refusal;
		END IF;
		SELECT slot, fence, acquired_at, COALESCE(expires_at, v_epoch), COALESCE(host_name, ''),
			COALESCE(process_id, 0), COALESCE(process_tag, '')
		INTO v_first, v_fence, v_acquired, v_expires, v_host, v_pid, v_tag
		FROM {table} FORCE INDEX (ends)
		WHERE resource_name = p_resource AND slot BETWEEN 0 AND v_n - 1 ORDER BY expires_at, slot LIMIT 1;
		SELECT slot, fence INTO v_again, v_again_fence FROM {table} FORCE INDEX (holders)
		WHERE lock_id = p_token AND resource_name = p_resource AND slot >= 0 AND expires_at > UTC_TIMESTAMP(6) LIMIT 1;
		-- The time is constant within a statement. It is later than the snapshot, so all leases
		-- that were found held were held at the same moment.
		SET v_clock = UTC_TIMESTAMP(6), v_clock_us = TIMESTAMPDIFF(MICROSECOND, v_epoch, v_clock),
			v_ends = v_clock + INTERVAL p_ttl MICROSECOND;
		-- Ignore values that were noted while the clock was ahead. They would refuse requests until
		-- the clock caught up.
		SET v_tick = IF(v_tick > v_clock_us + p_ahead, NULL, v_tick),
			v_asked = IF(v_asked_at > v_clock_us + p_ahead, NULL, v_asked),
			v_succeeded = IF(v_succeeded > v_clock + INTERVAL p_ahead MICROSECOND, NULL, v_succeeded);
		IF p_delay IS NOT NULL THEN -- a tick with a delay has no instant to compare with others
			SET p_tick = v_clock_us, v_tick = NULL;
		END IF;

		-- 2. again: the same request, repeated because its reply was lost. The lease is extended
		-- even if it was revoked: the caller trusts it for p_ttl from this request on, and its
		-- first heartbeat reports the revocation.
		SET v_i = 0, v_held = 0;
		WHILE v_i < v_others DO
			SET v_name = UNHEX(JSON_UNQUOTE(JSON_EXTRACT(p_also, CONCAT('$[', v_i, '][0]')))), v_row = NULL;
			SELECT slot INTO v_row FROM {table} FORCE INDEX (holders)
			WHERE lock_id = p_token AND resource_name = v_name AND slot >= 0 AND expires_at > UTC_TIMESTAMP(6) LIMIT 1;
			SET v_held = v_held + (v_row IS NOT NULL), v_i = v_i + 1;
		END WHILE;
		IF v_held <> IF(v_again IS NULL, 0, v_others) THEN
			SET v_reason = 'ended';
			LEAVE attempt;
		END IF;
		IF v_again IS NOT NULL THEN
			SET v_row = NULL;
			SELECT slot INTO v_row FROM {table} FORCE INDEX (PRIMARY) WHERE resource_name = p_resource
				AND slot = v_again FOR UPDATE SKIP LOCKED;
			IF v_row IS NULL THEN
				SET v_busy = 'the row of the slot was locked for too long';
				ITERATE attempt;
			END IF;
			UPDATE {table} FORCE INDEX (PRIMARY)
				SET expires_at = IF(expires_at = v_ends, v_ends + INTERVAL 1 MICROSECOND, v_ends),
					renewed_at = v_clock
			WHERE resource_name = p_resource AND slot = v_again AND lock_id = p_token AND expires_at > UTC_TIMESTAMP(6);
			IF ROW_COUNT() = 0 THEN -- the lease has just ended
				ITERATE attempt;
			END IF;
			SET v_i = 0, v_also = '';
			WHILE v_i < v_others DO
				SET v_name = UNHEX(JSON_UNQUOTE(JSON_EXTRACT(p_also, CONCAT('$[', v_i, '][0]')))), v_row = NULL,
					v_o_declared = 0, v_o_version = 0, v_o_limit = 0;
				SELECT slot, fence INTO v_o_slot, v_o_fence FROM {table} FORCE INDEX (holders)
				WHERE lock_id = p_token AND resource_name = v_name AND slot >= 0 LIMIT 1;
				SELECT slot INTO v_row FROM {table} FORCE INDEX (PRIMARY) WHERE resource_name = v_name
					AND slot = v_o_slot FOR UPDATE SKIP LOCKED;
				IF v_row IS NULL THEN
					SET v_busy = 'the row of the slot of a further semaphore was locked for too long';
					ITERATE attempt;
				END IF;
				UPDATE {table} FORCE INDEX (PRIMARY)
					SET expires_at = IF(expires_at = v_ends, v_ends + INTERVAL 1 MICROSECOND, v_ends),
						renewed_at = v_clock
				WHERE resource_name = v_name AND slot = v_o_slot AND lock_id = p_token
					AND expires_at > UTC_TIMESTAMP(6);
				IF ROW_COUNT() = 0 THEN -- the lease has just ended
					ITERATE attempt;
				END IF;
				SELECT COALESCE(slots, 0), COALESCE(overrides_version, 0), COALESCE(slot_limit, 0)
				INTO v_o_declared, v_o_version, v_o_limit FROM {table} WHERE resource_name = v_name AND slot = -1;
				SET v_also = CONCAT(v_also, ',[', v_o_slot, ',', v_o_fence, ',', v_o_declared, ',0,', v_o_version, ',',
					GREATEST(0, v_o_limit), ']'), v_i = v_i + 1;
			END WHILE;
			SET v_reason = 'ok', v_free = v_again, v_fence = v_again_fence;
			LEAVE attempt;
		END IF;

		-- 3. first: a missed tick whose schedule is unknown, or was unknown when the tick came due.
		-- From now on the schedule is known.
		IF p_missed IS NOT NULL AND p_tick <= v_clock_us + p_ahead
			AND (v_tick IS NULL OR COALESCE(v_schedule, 0) <> p_schedule)
			AND (NOT (v_asked <=> p_schedule) OR p_missed <= v_asked_at) THEN
			IF NOT (v_asked <=> p_schedule) THEN
				IF NOT v_lock THEN
					SET v_create = IF(v_head IS NULL, p_resource, NULL), v_lock = TRUE;
					ITERATE attempt;
				END IF;
				UPDATE {table} SET asked_schedule = p_schedule,
					asked_at = IF(p_missed > v_clock_us + p_ahead, v_clock_us, p_missed)
				WHERE resource_name = p_resource AND slot = -1;
			END IF;
			SET v_reason = 'tick_first';
			LEAVE attempt;
		END IF;

		-- 4 and 5. overrides, tick: nothing is granted during a pause or under a limit of 0. The
		-- tick is started at most p_max times, and never after a later tick.
		SET v_reason = CASE
			WHEN v_paused > v_clock OR v_limit = 0 THEN 'paused'
			WHEN p_missed < TIMESTAMPDIFF(MICROSECOND, v_epoch, v_paused)
				OR v_resumed <= v_clock + INTERVAL p_ahead MICROSECOND
				AND p_missed < TIMESTAMPDIFF(MICROSECOND, v_epoch, v_resumed) THEN 'paused'
			WHEN p_tick > v_clock_us + p_ahead THEN 'tick_ahead'
			WHEN p_tick < COALESCE(v_tick, 0) THEN 'tick_late'
			WHEN p_tick = v_tick AND v_starts >= p_max OR p_missed IS NOT NULL AND p_tick <= COALESCE(v_tick, 0)
				THEN 'tick_taken'
		END;
		IF v_reason IS NULL AND p_missed IS NOT NULL THEN -- if a host held a lease then, the tick was not missed
			-- within an IF this SELECT would lock the rows that it reads
			SELECT COUNT(*) INTO v_held FROM {table} WHERE resource_name = p_resource AND slot >= 0
				AND GREATEST(COALESCE(expires_at, v_epoch),
					IF(released_at <= v_clock + INTERVAL p_ahead MICROSECOND, released_at, v_epoch))
					> v_epoch + INTERVAL p_missed MICROSECOND;
			SET v_reason = IF(v_held > 0, 'tick_held', NULL);
		END IF;
		IF v_reason IS NOT NULL THEN
			LEAVE attempt;
		END IF;

		-- 6 and 7. slot, delay: with an overridden limit, the leases of every slot count, because a
		-- lowered limit may be exceeded. With a delay, no lease may be held, and the delay counts
		-- from the end of the last lease.
		IF v_limit > 0 OR p_delay IS NOT NULL THEN
			SELECT COUNT(*) INTO v_held FROM {table} FORCE INDEX (ends) WHERE resource_name = p_resource AND slot >= 0
				AND expires_at > v_clock;
			IF v_held >= IF(p_delay IS NULL, v_limit, 1) THEN
				SELECT acquired_at, expires_at, COALESCE(host_name, ''), COALESCE(process_id, 0),
					COALESCE(process_tag, '')
				INTO v_acquired, v_expires, v_host, v_pid, v_tag FROM {table} FORCE INDEX (ends)
				WHERE resource_name = p_resource AND slot >= 0 AND expires_at > v_clock
					ORDER BY expires_at, slot LIMIT 1;
				SET v_reason = 'full';
				LEAVE attempt;
			END IF;
		END IF;

		IF p_delay IS NOT NULL THEN
			SELECT MAX(GREATEST(COALESCE(expires_at, v_epoch),
					IF(released_at <= v_clock + INTERVAL p_ahead MICROSECOND, released_at, v_epoch)))
				+ INTERVAL p_delay MICROSECOND INTO v_over
			FROM {table} WHERE resource_name = p_resource AND slot >= 0;
			IF v_over > v_clock THEN
				SET v_reason = 'tick_early';
				LEAVE attempt;
			END IF;
		END IF;

		-- Choose a slot whose lease has ended and whose row is not locked, a new slot, or a slot
		-- whose row is missing.
		SET v_free = NULL, v_passed = 0;
		IF v_first IS NULL THEN
			SET v_free = 0;
		ELSEIF v_expires <= v_clock AND NOT v_lock THEN
			SET v_free = v_first;
		ELSE
			WHILE v_free IS NULL AND v_expires <= v_clock AND v_passed < 16 DO
				SET v_row = NULL;
				SELECT slot INTO v_row FROM {table} FORCE INDEX (PRIMARY) WHERE resource_name = p_resource
					AND slot = v_first FOR UPDATE SKIP LOCKED;
				IF v_row IS NOT NULL THEN
					SET v_free = v_first;
				ELSE
					SET v_passed = v_passed + 1, v_expires = NULL;
					SELECT slot, fence, COALESCE(expires_at, v_epoch) INTO v_first, v_fence, v_expires
					FROM {table} FORCE INDEX (ends)
					WHERE resource_name = p_resource AND slot BETWEEN 0 AND v_n - 1
						ORDER BY expires_at, slot LIMIT v_passed, 1;
				END IF;
			END WHILE;
		END IF;
		IF v_free IS NULL THEN
			SELECT MAX(slot) INTO v_last FROM {table} WHERE resource_name = p_resource AND slot BETWEEN 0 AND v_n - 1;
			IF v_last < v_n - 1 THEN
				SET v_free = v_last + 1;
			ELSE
				SELECT COUNT(*) INTO v_present FROM {table} WHERE resource_name = p_resource
					AND slot BETWEEN v_low AND v_high - 1;
				IF v_present = v_high - v_low THEN
					IF v_passed > 0 THEN
						SET v_busy = 'the row of every free slot was locked for too long';
						ITERATE attempt;
					END IF;
					SET v_reason = 'full';
					LEAVE attempt;
				END IF;
				SET v_free = v_low, v_row = NULL;
				SELECT slot INTO v_row FROM {table} WHERE resource_name = p_resource AND slot = v_free;
				WHILE v_row IS NOT NULL DO -- WHILE EXISTS (SELECT ...) would lock the rows that it reads
					SET v_free = v_free + 1, v_row = NULL;
					SELECT slot INTO v_row FROM {table} WHERE resource_name = p_resource AND slot = v_free;
				END WHILE;
			END IF;
		END IF;

		-- 8. shared: the first further semaphore that has no free slot refuses the request. If the
		-- request has locked their rows, it takes a slot of each.
		SET v_i = 0, v_also = '';
		WHILE v_i < v_others DO
			SET v_name = UNHEX(JSON_UNQUOTE(JSON_EXTRACT(p_also, CONCAT('$[', v_i, '][0]')))),
				v_size = JSON_EXTRACT(p_also, CONCAT('$[', v_i, '][1]')), v_o_declared = 0, v_o_version = 0,
				v_o_limit = NULL, v_o_paused = NULL, v_o_pause_origin = NULL, v_o_limit_origin = NULL;
			SELECT COALESCE(slots, 0), COALESCE(overrides_version, 0), slot_limit, paused_until, pause_origin,
				limit_origin
			INTO v_o_declared, v_o_version, v_o_limit, v_o_paused, v_o_pause_origin, v_o_limit_origin
			FROM {table} WHERE resource_name = v_name AND slot = -1;
			SET v_o_n = IF(v_o_limit > 0, v_o_limit, v_size);
			SELECT COUNT(*) INTO v_held FROM {table} FORCE INDEX (ends) WHERE resource_name = v_name AND slot >= 0
				AND (v_o_limit > 0 OR slot < v_o_n) AND expires_at > v_clock;
			IF v_o_paused > v_clock OR v_o_limit = 0 THEN
				SET v_reason = 'limit_full', v_host = '', v_pid = 0, v_tag = '', v_acquired = v_clock,
					v_expires = IF(v_o_paused > v_clock, v_o_paused, v_clock),
					v_o_origin = IF(v_o_paused > v_clock, v_o_pause_origin, v_o_limit_origin);
			ELSEIF v_held >= v_o_n THEN
				SET v_reason = 'limit_full';
				SELECT acquired_at, expires_at, COALESCE(host_name, ''), COALESCE(process_id, 0),
					COALESCE(process_tag, '')
				INTO v_acquired, v_expires, v_host, v_pid, v_tag FROM {table} FORCE INDEX (ends)
				WHERE resource_name = v_name AND slot >= 0 AND (v_o_limit > 0 OR slot < v_o_n) AND expires_at > v_clock
					ORDER BY expires_at, slot LIMIT 1;
			END IF;
			SET v_rate = JSON_EXTRACT(p_also, CONCAT('$[', v_i, '][2]')),
				v_per = JSON_EXTRACT(p_also, CONCAT('$[', v_i, '][3]'));
			IF v_reason IS NULL AND v_rate > 0 THEN
				SET v_log = '', v_believed = NULL, v_counted = 0;
				SELECT COALESCE(starts, '') INTO v_log FROM {table} WHERE resource_name = v_name AND slot = -1;
				SET v_records = LENGTH(v_log) DIV 26;
				IF v_records > 0
					AND CAST(SUBSTRING(v_log, 26 * v_records - 25, 16) AS SIGNED) > v_clock_us + p_ahead + v_per DIV 60
				THEN
					-- These starts were counted while the clock was ahead, so they happened before
					-- now.
					WHILE v_records > 0
						AND CAST(SUBSTRING(v_log, GREATEST(1, 26 * v_records - 25), 16) AS SIGNED) > v_clock_us DO
						SET v_counted = v_counted + CAST(SUBSTRING(v_log, 26 * v_records - 9, 10) AS SIGNED),
							v_records = v_records - 1;
					END WHILE;
					SET v_log = CONCAT(SUBSTRING(v_log, 1, 26 * v_records), LPAD(v_clock_us, 16, '0'),
						LPAD(LEAST(v_counted, 9999999999), 10, '0')),
						v_records = v_records + 1, v_counted = 0, v_believed = v_log;
				END IF;
				SET v_record = v_records;
				WHILE v_record > 0 AND v_reason IS NULL DO
					SET v_end = CAST(SUBSTRING(v_log, 26 * v_record - 25, 16) AS SIGNED);
					IF v_end <= v_clock_us - v_per THEN
						SET v_record = 0;
					ELSE
						SET v_counted = v_counted + CAST(SUBSTRING(v_log, 26 * v_record - 9, 10) AS SIGNED);
						IF v_counted >= v_rate THEN
							SET v_reason = 'limit_rate', v_rate_wait = v_end + v_per - v_clock_us;
						END IF;
						SET v_record = v_record - 1;
					END IF;
				END WHILE;
			END IF;
			IF v_reason IS NOT NULL THEN
				ROLLBACK AND NO CHAIN NO RELEASE; -- undo the slots taken so far
				SET v_also = CONCAT(',[', v_i, ',0,', v_o_declared, ',0,', v_o_version, ',',
					COALESCE(GREATEST(0, v_o_limit), 0), ']');
				LEAVE attempt;
			END IF;
			IF v_lock THEN
				SET v_row = NULL, v_passed = 0, v_o_slot = NULL, v_o_expires = NULL;
				SELECT slot, fence, COALESCE(expires_at, v_epoch) INTO v_o_slot, v_o_fence, v_o_expires
				FROM {table} FORCE INDEX (ends)
				WHERE resource_name = v_name AND slot BETWEEN 0 AND v_o_n - 1 ORDER BY expires_at, slot LIMIT 1;
				WHILE v_row IS NULL AND v_o_expires <= v_clock AND v_passed < 16 DO
					SELECT slot INTO v_row FROM {table} FORCE INDEX (PRIMARY) WHERE resource_name = v_name
						AND slot = v_o_slot FOR UPDATE SKIP LOCKED;
					IF v_row IS NULL THEN
						SET v_passed = v_passed + 1, v_o_expires = NULL;
						SELECT slot, fence, COALESCE(expires_at, v_epoch) INTO v_o_slot, v_o_fence, v_o_expires
						FROM {table} FORCE INDEX (ends)
						WHERE resource_name = v_name AND slot BETWEEN 0 AND v_o_n - 1
							ORDER BY expires_at, slot LIMIT v_passed, 1;
					END IF;
				END WHILE;
				IF v_row IS NOT NULL THEN
					SET v_o_fence = GREATEST(v_o_fence + 1, v_clock_us), v_o_previous_expired = v_o_expires > v_epoch;
					UPDATE {table} FORCE INDEX (PRIMARY) SET lock_id = p_token, fence = v_o_fence,
						acquired_at = v_clock, renewed_at = v_clock, expires_at = v_ends, released_at = NULL,
						revoked = NULL,
						host_name = CONVERT(p_host USING utf8mb4), process_id = p_pid,
						process_tag = CONVERT(p_tag USING utf8mb4)
					WHERE resource_name = v_name AND slot = v_o_slot
						AND COALESCE(expires_at, v_epoch) <= UTC_TIMESTAMP(6)
						AND (COALESCE(expires_at, v_epoch) > v_epoch) = v_o_previous_expired;
					IF ROW_COUNT() = 0 THEN -- the lease was just extended or released
						ITERATE attempt;
					END IF;
				ELSE
					SELECT MAX(slot) INTO v_o_last FROM {table} WHERE resource_name = v_name
						AND slot BETWEEN 0 AND v_o_n - 1;
					SET v_o_slot = COALESCE(v_o_last, -1) + 1;
					IF v_o_slot = v_o_n THEN -- only if a row was deleted
						SET v_o_slot = 0, v_row = 0;
						WHILE v_row IS NOT NULL AND v_o_slot < v_o_n DO
							SET v_row = NULL;
							SELECT slot INTO v_row FROM {table} WHERE resource_name = v_name AND slot = v_o_slot;
							SET v_o_slot = v_o_slot + (v_row IS NOT NULL);
						END WHILE;
						IF v_o_slot = v_o_n THEN
							SET v_busy = 'the row of every free slot of a further semaphore was locked for too long';
							ITERATE attempt;
						END IF;
					END IF;
					SET v_o_fence = v_clock_us, v_o_previous_expired = FALSE;
					INSERT INTO {table} (resource_name, slot, lock_id, fence, acquired_at, renewed_at, expires_at,
						host_name, process_id, process_tag)
					VALUES (v_name, v_o_slot, p_token, v_o_fence, v_clock, v_clock, v_ends,
						CONVERT(p_host USING utf8mb4), p_pid, CONVERT(p_tag USING utf8mb4));
				END IF;
				IF v_rate > 0 THEN -- count this start
					SET v_bucket = IF(v_rate > 60, (v_per + 59) DIV 60, 1),
						v_end = v_clock_us - v_clock_us % v_bucket + v_bucket;
					IF v_records > 0 AND CAST(SUBSTRING(v_log, 26 * v_records - 25, 16) AS SIGNED) >= v_end THEN
						SET v_log = CONCAT(SUBSTRING(v_log, 1, 26 * v_records - 10),
							LPAD(CAST(SUBSTRING(v_log, 26 * v_records - 9, 10) AS SIGNED) + 1, 10, '0'));
					ELSE
						IF v_records >= 64 THEN
							SET v_log = CONCAT(SUBSTRING(v_log, 27, 16), LPAD(LEAST(9999999999,
								CAST(SUBSTRING(v_log, 17, 10) AS SIGNED) + CAST(SUBSTRING(v_log, 43, 10) AS SIGNED)),
								10, '0'), SUBSTRING(v_log, 53));
						END IF;
						SET v_log = CONCAT(v_log, LPAD(v_end, 16, '0'), '0000000001');
					END IF;
					UPDATE {table} SET starts = v_log WHERE resource_name = v_name AND slot = -1;
				END IF;
				IF v_o_declared <> v_size THEN
					UPDATE {table} SET slots = v_size WHERE resource_name = v_name AND slot = -1;
				END IF;
				SET v_also = CONCAT(v_also, ',[', v_o_slot, ',', v_o_fence, ',', v_o_declared, ',',
					0 + v_o_previous_expired, ',', v_o_version, ',', COALESCE(GREATEST(0, v_o_limit), 0), ']');
			END IF;
			SET v_i = v_i + 1;
		END WHILE;
		IF v_others > 0 AND NOT v_lock THEN
			SET v_create = IF(v_head IS NULL, p_resource, NULL), v_lock = TRUE;
			ITERATE attempt;
		END IF;

		IF v_head IS NULL THEN
			-- This is the first grant of the name. Since the snapshot nothing was granted or
			-- updated, because that would have inserted this row.
			INSERT INTO {table} (resource_name, slot) VALUES (p_resource, -1);
		ELSEIF NOT v_lock THEN
			SET v_lock = TRUE;
			ITERATE attempt;
		END IF;

		-- 9. grant: take the slot.
		IF v_free = v_first THEN
			SET v_fence = GREATEST(v_fence + 1, v_clock_us), v_previous_expired = v_expires > v_epoch;
			UPDATE {table} FORCE INDEX (PRIMARY) SET lock_id = p_token, fence = v_fence, acquired_at = v_clock,
				renewed_at = v_clock, expires_at = v_ends, released_at = NULL, revoked = NULL,
				host_name = CONVERT(p_host USING utf8mb4), process_id = p_pid,
				process_tag = CONVERT(p_tag USING utf8mb4)
			WHERE resource_name = p_resource AND slot = v_free AND COALESCE(expires_at, v_epoch) <= UTC_TIMESTAMP(6)
				AND (COALESCE(expires_at, v_epoch) > v_epoch) = v_previous_expired;
			IF ROW_COUNT() = 0 THEN -- the lease was just extended or released
				ITERATE attempt;
			END IF;
		ELSE
			SET v_fence = v_clock_us;
			INSERT INTO {table} (resource_name, slot, lock_id, fence, acquired_at, renewed_at, expires_at, host_name,
				process_id, process_tag)
			VALUES (p_resource, v_free, p_token, v_fence, v_clock, v_clock, v_ends, CONVERT(p_host USING utf8mb4),
				p_pid, CONVERT(p_tag USING utf8mb4));
		END IF;

		-- 10. record: count the start of the tick, and store the declared slots.
		IF p_tick IS NOT NULL OR COALESCE(v_declared, 0) <> p_slots THEN
			SET v_starts = CASE WHEN p_tick IS NULL THEN v_starts WHEN p_tick = v_tick THEN v_starts + 1 ELSE 1 END;
			IF p_tick IS NOT NULL THEN
				SET v_tick_host = p_host, v_tick_pid = p_pid, v_tick_tag = p_tag;
			END IF;
			-- MySQL assigns from left to right, so later expressions see the new values.
			UPDATE {table} SET tick = COALESCE(p_tick, tick), tick_starts = v_starts,
				asked_schedule = IF(p_tick IS NULL OR tick_schedule <=> p_schedule, asked_schedule, NULL),
				tick_schedule = IF(p_tick IS NULL, tick_schedule, p_schedule), slots = p_slots,
				host_name = CONVERT(v_tick_host USING utf8mb4), process_id = v_tick_pid,
				process_tag = CONVERT(v_tick_tag USING utf8mb4)
			WHERE resource_name = p_resource AND slot = -1;
		END IF;
		IF TIMESTAMPDIFF(MICROSECOND, v_began, UTC_TIMESTAMP(6)) > p_wait * 1000 THEN
			-- The caller has stopped waiting, so the slot would be held for a TTL without a holder.
			SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1205, MESSAGE_TEXT = 'the slot was locked for too long';
		END IF;
		SET v_reason = 'ok';
		LEAVE attempt;
	END; END LOOP;
	COMMIT AND NO CHAIN NO RELEASE;

	IF v_reason = 'limit_rate' AND v_believed IS NOT NULL THEN
		BEGIN
			DECLARE EXIT HANDLER FOR 1205, 1213, 1020 ROLLBACK AND NO CHAIN NO RELEASE; -- the next refusal tries again
			SET v_row = NULL;
			SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
			START TRANSACTION READ WRITE;
			SELECT slot INTO v_row FROM {table} WHERE resource_name = v_name AND slot = -1 FOR UPDATE SKIP LOCKED;
			IF v_row IS NOT NULL THEN
				UPDATE {table} SET starts = v_believed WHERE resource_name = v_name AND slot = -1
					AND CAST(SUBSTRING(RIGHT(starts, 26), 1, 16) AS SIGNED) > v_clock_us + p_ahead;
			END IF;
			COMMIT AND NO CHAIN NO RELEASE;
		END;
	END IF;

	-- A lease that was renewed while the clock was ahead would last too long. Its holder trusts it
	-- for one TTL from a moment in the past, so ending it one TTL from now is safe. Each refusal
	-- looks at the lease that ends last, and locks its row only if that lease needs to be
	-- shortened.
	IF v_reason IN ('full', 'tick_held', 'limit_full') THEN
		BEGIN
			DECLARE EXIT HANDLER FOR 1205, 1213, 1020 ROLLBACK AND NO CHAIN NO RELEASE; -- the next refusal tries again
			SET v_name = IF(v_reason = 'limit_full', v_name, p_resource), v_row = NULL, v_o_slot = NULL,
				v_o_expires = NULL;
			SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
			START TRANSACTION READ WRITE;
			SELECT slot, renewed_at INTO v_row, v_o_expires FROM {table} FORCE INDEX (ends)
			WHERE resource_name = v_name AND slot >= 0 ORDER BY expires_at DESC LIMIT 1;
			IF v_o_expires > v_clock + INTERVAL p_ahead MICROSECOND THEN
				SELECT slot INTO v_o_slot FROM {table} FORCE INDEX (PRIMARY) WHERE resource_name = v_name
					AND slot = v_row FOR UPDATE SKIP LOCKED;
				-- MySQL assigns from left to right, so later expressions see the new values.
				UPDATE {table} FORCE INDEX (PRIMARY)
					SET expires_at = v_clock + INTERVAL TIMESTAMPDIFF(MICROSECOND, renewed_at, expires_at) MICROSECOND,
						renewed_at = v_clock
				WHERE resource_name = v_name AND slot = v_o_slot AND expires_at > v_clock
					AND renewed_at > v_clock + INTERVAL p_ahead MICROSECOND;
			END IF;
			COMMIT AND NO CHAIN NO RELEASE;
		END;
	END IF;

	SET SESSION innodb_lock_wait_timeout = v_row_wait, SESSION lock_wait_timeout = v_table_wait;
	SELECT v_reason, COALESCE(v_free, 0), COALESCE(v_fence, 0), COALESCE(v_declared, 0),
		COALESCE(GREATEST(1, TIMESTAMPDIFF(MICROSECOND, v_succeeded, v_clock)), 0),
		CASE WHEN v_reason IN ('full', 'limit_full') THEN v_host WHEN v_reason = 'tick_taken' THEN v_tick_host
			ELSE '' END,
		CASE WHEN v_reason IN ('full', 'limit_full') THEN v_pid WHEN v_reason = 'tick_taken' THEN v_tick_pid ELSE 0 END,
		CASE WHEN v_reason IN ('full', 'limit_full') THEN v_tag WHEN v_reason = 'tick_taken' THEN v_tick_tag
			ELSE '' END,
		CASE WHEN v_reason IN ('full', 'limit_full') THEN TIMESTAMPDIFF(MICROSECOND, v_acquired, v_clock) ELSE 0 END,
		CASE
			WHEN v_reason IN ('full', 'limit_full') THEN TIMESTAMPDIFF(MICROSECOND, v_clock, v_expires)
			WHEN v_reason = 'paused' AND v_paused > v_clock THEN TIMESTAMPDIFF(MICROSECOND, v_clock, v_paused)
			WHEN v_reason = 'tick_early' THEN TIMESTAMPDIFF(MICROSECOND, v_clock, v_over)
			WHEN v_reason = 'limit_rate' THEN v_rate_wait
			ELSE 0
		END,
		v_reason = 'ok' AND v_previous_expired, COALESCE(v_version, 0), GREATEST(0, COALESCE(v_limit, 0)),
		CASE
			WHEN v_reason = 'limit_full' THEN COALESCE(v_o_origin, '')
			WHEN v_reason <> 'paused' THEN ''
			WHEN v_paused > v_clock OR COALESCE(v_limit, 1) > 0 THEN COALESCE(v_pause_origin, '')
			ELSE COALESCE(v_limit_origin, '')
		END,
		CAST(CONCAT('[', SUBSTRING(v_also, 2), ']') AS BINARY);
END

-- name: acquire
CALL {acquire}(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
