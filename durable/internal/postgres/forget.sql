-- Deletes attempts of the runs in {of}, by id and latest attempt: those that are neither among the
-- first nor among the latest.
DELETE FROM {attempts} AS a
WHERE a.run_id = ANY (ARRAY(SELECT id FROM {of} WHERE attempt > {first} + {last})) AND a.attempt > {first}
	AND a.attempt <= (SELECT l.attempt - {last} FROM {of} AS l WHERE l.id = a.run_id)
