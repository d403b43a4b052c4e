package sqllock

import (
	"context"
	"errors"
	"time"
)

// Audit implements dlock.Auditor. It warns of a schema that Migrate has not made, of settings of
// the server with which leases do not survive its crash, of a server that cannot write, on Postgres
// of rights that are missing or that are far too many, in SQLite of a file that is not on this
// machine, and of clocks that are more than a second apart.
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
