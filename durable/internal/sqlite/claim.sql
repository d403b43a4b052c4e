-- Claims a run: ?1 id, ?2 worker, ?3 now, ?4 lease_until, ?5 how many attempts the handler allows;
-- 0: any number; ?6 the value of the claim.
UPDATE {runs} SET state = 'running', attempt = attempt + 1, worker = ?2, claim = ?6, claimed_at = ?3, lease_until = ?4,
	max_attempts = coalesce(attempts_before +
		nullif(CASE WHEN own_max_attempts > 0 THEN own_max_attempts ELSE ?5 END, 0), 0)
WHERE id = ?1 RETURNING {run}, payload
