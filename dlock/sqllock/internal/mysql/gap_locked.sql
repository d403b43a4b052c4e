-- Another transaction that has locked a range of rows may, on MySQL, have locked a gap of the index
-- "ends", into which the new end of this lease falls. That costs the leases of this name, not those
-- that the call has changed already, unless the server rolls these back.
					DECLARE EXIT HANDLER FOR 1205
					BEGIN
						IF @@GLOBAL.innodb_rollback_on_timeout THEN
							RESIGNAL;
						END IF;
						SET v_held = -1, v_gaps = v_name;
					END;
