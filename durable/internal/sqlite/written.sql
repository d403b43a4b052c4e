SELECT 1 FROM {attempts} WHERE run_id = ?1 AND attempt = ?2 AND worker = ?3 AND outcome = ?4 AND claim = ?5
