package sqllock

import (
	"time"

	"github.com/tickslot/tickslot/dlock/sqllock/internal/postgres"
	"github.com/tickslot/tickslot/dlock/sqllock/internal/sqlite"
)

// SetHostClock makes Audit take another clock for this host's.
func (s *Store) SetHostClock(now func() time.Time) { s.hostClock = now }

// SetRemoteKind makes Audit ask it for the kind of file system of a SQLite file.
func (s *Store) SetRemoteKind(kind func(path string) string) { s.db.(*sqlite.DB).RemoteKind = kind }

// KindOf finds the file system of a path in a list of what is mounted.
func KindOf(path, mounts string) string {
	_, kind := sqlite.MountOf(path, mounts)
	return kind
}

// SetOldTransaction makes Audit warn of transactions that are older than d.
func (s *Store) SetOldTransaction(d time.Duration) { s.db.(*postgres.DB).Old = d }

// FunctionName returns the name of a function in Postgres, without its schema.
func (s *Store) FunctionName(function string) string {
	return s.db.(*postgres.DB).FunctionName(function)
}
