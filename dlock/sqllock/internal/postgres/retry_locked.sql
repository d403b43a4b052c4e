-- Tries the leases again whose rows were locked, until v_until or until another one was found.
		EXIT WHEN v_left IS NULL;
		IF v_done > 0 OR clock_timestamp() > v_until THEN
			v_answers := v_answers || v_locked;
			EXIT;
		END IF;
		PERFORM pg_sleep(v_sleep);
		v_sleep := least(2 * v_sleep, 0.05);
		p_grants := v_left::text;
