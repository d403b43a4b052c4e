-- Claims a run: ?1 id, ?2 worker, ?3 now, ?4 lease_until, ?5 how many attempts the handler allows.
UPDATE {runs} SET state = 'running', attempt = attempt + 1, worker = ?2, claimed_at = ?3, lease_until = ?4,
	max_attempts = attempts_before + CASE WHEN own_max_attempts > 0 THEN own_max_attempts ELSE ?5 END
WHERE id = ?1 RETURNING {run}, payload
