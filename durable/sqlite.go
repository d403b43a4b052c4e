package durable

import (
	"database/sql"

	"github.com/tickslot/tickslot/durable/internal/sqlite"
)

// SQLite returns a Store in a SQLite file, for the processes of one machine. It needs SQLite 3.38
// or newer and works with any driver for database/sql. SQLite does not open the file.
//
// The store may share the application's file. Then the application's transactions can trigger runs:
// see SQLTx. SQLite has one write lock per file. A call that finds it taken tries again about every
// millisecond until its context ends. If a transaction of the application writes for longer than
// Config.TTL, leases are lost, so keep transactions short or give the store its own file. Begin
// transactions with BEGIN IMMEDIATE and let them wait for the lock. With modernc.org/sqlite, add
// _txlock=immediate and _pragma=busy_timeout(5000) to the name of the file. Otherwise, SQLite
// refuses a transaction as locked if it reads before it triggers and another connection has written
// in between.
//
// Migrate sets the journal mode WAL, which the file keeps. Do not set another mode in the name of
// the file: a connection that has to change the mode fails while others are open.
//
// A worker takes a connection for each call. If its handlers use the same *sql.DB, allow more
// connections than the handlers hold at the same time. Otherwise, leases cannot be renewed. An
// in-memory database exists only in its connection, so call db.SetMaxOpenConns(1), and do not hold
// a connection or transaction for long.
//
// A process that is stopped in the middle of a write holds up all others until it continues or is
// killed.
//
// Processes cannot wake each other: a worker finds the runs that another process has queued within
// PollInterval. Store.Notify wakes only the workers of the same Store. Do not put the file on a
// network file system: see sqllock.SQLite.
//
// The application sets PRAGMA synchronous, which decides how durable a commit is. With normal, the
// latest runs may be lost when the machine loses power, but not when a process dies.
func SQLite(db *sql.DB, opts Options) *Store {
	opts = opts.withDefaults()
	s, err := sqlite.New(db, opts.TableName, opts.Schema)
	return StoreOn(s, err)
}
