package redlock

import "time"

// SetHostClock makes Audit take another clock for this host's.
func (s *Store) SetHostClock(now func() time.Time) { s.hostClock = now }
