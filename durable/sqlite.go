package durable

import (
	"database/sql"

	"github.com/tickslot/tickslot/durable/internal/sqlite"
)

// SQLite returns a Store in a SQLite file, for the processes of one machine. It needs SQLite 3.38
// or newer, and works with any driver for database/sql. It does not open the file.
//
// The store may share the application's file, whose transactions can then trigger runs, see SQLTx.
// SQLite has one write lock per file: a call that finds it taken tries again about every
// millisecond, until its context ends. If a transaction of the application writes for longer than
// Config.TTL, leases are lost: keep transactions short, or give the store its own file. Begin them
// with BEGIN IMMEDIATE, and let them wait for the lock (with modernc.org/sqlite: _txlock=immediate
// and _pragma=busy_timeout(5000) in the name of the file): SQLite refuses a transaction as locked
// if it reads before it triggers and another connection has written in between.
//
// Migrate sets the journal mode WAL, which the file keeps. Set no other mode in the name of the
// file: a connection that has to change it fails while others are open.
//
// A worker takes a connection for each call. If its handlers use the same *sql.DB, allow it more
// connections than handlers hold at the same time, or leases cannot be renewed. With a database in
// memory each connection has its own database, which ends with it: call db.SetMaxOpenConns(1), and
// hold no connection or transaction for long.
//
// A process that is stopped in the middle of a write holds up all others until it continues or is
// killed.
//
// Processes cannot wake each other: a worker finds the runs that another process has queued within
// PollInterval. Store.Notify wakes the workers of the same Store only. Do not put the file on a
// network file system: see sqllock.SQLite.
//
// PRAGMA synchronous, which the application sets, decides how durable a commit is: with normal, the
// latest runs may be lost when the machine loses power, but not when a process dies.
func SQLite(db *sql.DB, opts Options) *Store {
	opts = opts.withDefaults()
	s, err := sqlite.New(db, opts.TableName, opts.Schema)
	return StoreOn(s, err)
}
