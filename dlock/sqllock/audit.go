package sqllock

import (
	"context"
	"errors"
	"time"
)

// Audit implements driver.Auditor. It warns of a schema that differs from Migrate's, of server
// settings with which leases do not survive a crash, of a server that cannot write, and of clocks
// that differ by more than a second. On Postgres, it also warns of missing privileges and of a
// superuser. On SQLite, it also warns of a file that is not on this machine.
func (s *Store) Audit(ctx context.Context) ([]string, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	now := s.hostClock
	if now == nil {
		now = time.Now
	}
	warnings, err := s.db.Audit(ctx, now)
	if err != nil {
		return warnings, explain(err)
	}
	err = s.Verify(ctx)
	if errors.Is(err, ErrSchema) {
		return append(warnings, err.Error()), nil
	}
	return warnings, err
}
