package redisregistry

// Keys returns the keys of the registry.
func (s *Store) Keys() []string { return s.keys }
