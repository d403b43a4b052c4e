package sqllock

import (
	"context"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock/internal/postgres"
	"github.com/tickslot/tickslot/dlock/sqllock/internal/sqlite"
	"github.com/tickslot/tickslot/dlock/sqllock/internal/store"
	"github.com/tickslot/tickslot/internal/sqlkit"
)

// SetHostClock replaces the host's clock that Audit reads.
func (s *Store) SetHostClock(now func() time.Time) { s.hostClock = now }

// SetRemoteKind replaces the function with which Audit finds the kind of a SQLite file's file
// system.
func (s *Store) SetRemoteKind(kind func(path string) string) { s.db.(*sqlite.DB).RemoteKind = kind }

// KindOf returns the kind of a path's file system according to a list of mounts.
func KindOf(path, mounts string) string {
	_, kind := sqlkit.MountOf(path, mounts)
	return kind
}

// SetOldTransaction sets the age above which Audit warns of a transaction.
func (s *Store) SetOldTransaction(d time.Duration) { s.db.(*postgres.DB).OldTransactionAge = d }

// EnumerateRows returns how many rows of a page the database examined, and the resources of the
// returned leases.
func (s *Store) EnumerateRows(ctx context.Context, after string, limit int) (seen int, resources []string, err error) {
	p, err := s.db.Enumerate(ctx, store.EnumerateParams{Prefix: s.prefix, After: store.Row{Resource: after},
		Limit: limit, Released: micros(driver.ReleasedFor)})
	for _, l := range p.Leases {
		resources = append(resources, l.Resource)
	}
	return p.Seen, resources, err
}

// FunctionName returns the name of a function in Postgres, without its schema.
func (s *Store) FunctionName(function string) string {
	return s.db.(*postgres.DB).FunctionName(function)
}
