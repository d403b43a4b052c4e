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

// SetHostClock makes Audit take another clock for this host's.
func (s *Store) SetHostClock(now func() time.Time) { s.hostClock = now }

// SetRemoteKind makes Audit call kind for the kind of file system of a SQLite file.
func (s *Store) SetRemoteKind(kind func(path string) string) { s.db.(*sqlite.DB).RemoteKind = kind }

// KindOf finds the file system of a path in a list of mounts.
func KindOf(path, mounts string) string {
	_, kind := sqlkit.MountOf(path, mounts)
	return kind
}

// SetOldTransaction makes Audit warn of transactions that are older than d.
func (s *Store) SetOldTransaction(d time.Duration) { s.db.(*postgres.DB).OldTransactionAge = d }

// EnumerateRows returns how many rows of a page the database looked at, and the resources of the
// leases that it returned.
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
