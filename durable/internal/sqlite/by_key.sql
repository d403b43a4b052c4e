SELECT id FROM {runs} WHERE handler = ?1 AND key = ?2
