package sqllock

import (
	"strings"
	"time"
)

// SetHostClock makes Audit take another clock for this host's.
func (s *Store) SetHostClock(now func() time.Time) { s.hostClock = now }

// SetRemoteKind makes Audit ask it for the kind of file system of a SQLite file.
func (s *Store) SetRemoteKind(kind func(path string) string) { s.db.(*sqlite).remoteKind = kind }

// KindOf finds the file system of a path in a list of what is mounted.
func KindOf(path, mounts string) string {
	_, kind := mountOf(path, mounts)
	return kind
}

// SetOldTransaction makes Audit warn of transactions that are older than d.
func (s *Store) SetOldTransaction(d time.Duration) { s.db.(*postgres).old = d }

// FunctionName returns the name of a function in Postgres, without its schema.
func (s *Store) FunctionName(function string) string {
	name := s.db.(*postgres).names[function]
	return name[strings.LastIndex(name, ".")+1:]
}
