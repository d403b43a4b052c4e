-- Deletes attempts of the run ?1, whose latest attempt is ?2: those that are neither among the
-- first nor among the latest.
DELETE FROM {attempts} WHERE run_id = ?1 AND attempt > {first} AND attempt <= ?2 - {last}
