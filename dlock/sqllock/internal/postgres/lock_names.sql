-- Locks the name, and those of the further semaphores, in an order that is the same for every
-- request.
			v_locked := true;
			PERFORM set_config('lock_timeout',
				greatest(1, extract(epoch FROM v_until - clock_timestamp()) * 1000)::bigint::text, true);
			IF p_also IS NULL THEN
				PERFORM pg_advisory_xact_lock(hashtextextended('tickslot name ' || p_resource, 0));
			ELSE
				PERFORM pg_advisory_xact_lock(k.key) FROM (
					SELECT hashtextextended('tickslot name ' || n.name, 0) AS key FROM (SELECT p_resource AS name
						UNION ALL SELECT a ->> 0 FROM json_array_elements(p_also::json) AS a) AS n
					ORDER BY 1 OFFSET 0) AS k;
			END IF;
