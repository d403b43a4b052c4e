package redlock

import "time"

// SetHostClock replaces the host's clock that Audit reads.
func (s *Store) SetHostClock(now func() time.Time) { s.hostClock = now }
