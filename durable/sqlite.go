package durable

import (
	"database/sql"

	"github.com/tickslot/tickslot/durable/internal/sqlite"
)

// SQLite returns a store in a SQLite file, for the processes of one machine. It needs SQLite 3.38
// or newer, and works with any driver for database/sql. It does not open the file.
//
// The file may be that of the application, whose transactions can then trigger runs, see SQLTx.
// SQLite has one write lock per file: a call that finds it taken tries again about every
// millisecond, until its context ends. So a transaction of the application that writes for longer
// than Config.TTL costs leases: keep them short, or give the store a file of its own. Let them
// begin with BEGIN IMMEDIATE, and wait for the lock (of modernc.org/sqlite: _txlock=immediate and
// _pragma=busy_timeout(5000) in the name of the file): a transaction that has read before it
// triggers is refused as locked, by SQLite, if somebody else has written meanwhile.
//
// Migrate sets the journal mode WAL, which stays in the file. Set no other one in the name of the
// file: a connection that has to change it fails while others are open.
//
// A worker takes a connection for each call. If its handlers use the same *sql.DB, allow it more
// connections than handlers hold at once, or leases cannot be renewed. Each connection to a
// database in memory has a database of its own, which ends with it: call db.SetMaxOpenConns(1), and
// hold no connection or transaction for long.
//
// A process that is stopped in the middle of a write holds up all others until it continues or is
// killed.
//
// Processes cannot wake each other: runs that another process has queued are found within
// PollInterval. Store.Notify wakes the workers of the same Store only. Do not put the file on a
// network file system: see sqllock.SQLite.
//
// The application decides by PRAGMA synchronous how durable a commit is: with normal, the latest
// runs may be lost when the machine loses power, though not when a process dies.
func SQLite(db *sql.DB, opts Options) *Store {
	opts = opts.withDefaults()
	s, err := sqlite.New(db, opts.TableName, opts.Schema)
	return StoreOn(s, err)
}
