-- A session's settings may be those of the role, the database, or another client of a pooler. With
	-- these a call would decide on stale rows, or be canceled while it waits, which looks like a
	-- server that is down. The caller repeats it in a transaction that has ours.
	IF current_setting('transaction_isolation') <> 'read committed'
		OR nullif(current_setting('statement_timeout'), '0')::interval < p_wait * interval '0.5 millisecond' THEN
		RAISE EXCEPTION 'the session has transaction_isolation = % and statement_timeout = %',
			current_setting('transaction_isolation'), current_setting('statement_timeout') USING ERRCODE = 'TS001';
	END IF;
