-- Commits, and tries the leases again whose rows were locked, for half of p_wait.
		CLOSE wanted;
		COMMIT AND NO CHAIN NO RELEASE;
		SET v_answers = CONCAT(v_answers, v_done_now);
		IF v_locked = '' THEN
			LEAVE attempt;
		END IF;
		IF TIMESTAMPDIFF(MICROSECOND, v_began, UTC_TIMESTAMP(6)) > p_wait * 500 THEN
			SET v_answers = CONCAT(v_answers, v_unknown);
			LEAVE attempt;
		END IF;
		SET v_grants = CONCAT('[', v_locked, ']');
		DO SLEEP(0.001 + 0.004 * RAND());
