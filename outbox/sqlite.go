package outbox

import (
	"database/sql"

	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/outbox/internal/sqlstore"
)

// SQLite returns an Outbox in a SQLite file, for the processes of one machine. It needs SQLite 3.38
// or newer and works with any driver for database/sql. SQLite does not open the file.
//
// The outbox shares the application's file, because the application's transactions append messages:
// see SQLTx. SQLite has one write lock per file. A call of a relay that finds it taken tries again
// about every millisecond until its context ends. Keep the application's transactions short, begin
// them with BEGIN IMMEDIATE, and let them wait for the lock. With modernc.org/sqlite, add
// _txlock=immediate and _pragma=busy_timeout(5000) to the name of the file. Without BEGIN
// IMMEDIATE, SQLite refuses a transaction as locked if it reads before it appends and another
// transaction has written in between.
//
// Processes cannot wake each other: a relay finds a message that another process has appended
// within RelayConfig.PollInterval. Do not put the file on a network file system: see
// sqllock.SQLite.
//
// The application sets PRAGMA synchronous, which decides how durable a commit is. With normal, the
// latest messages and their changes may be lost when the machine loses power, but not when a
// process dies.
func SQLite(db *sql.DB, opts Options) *Outbox {
	opts = opts.withDefaults()
	s, err := sqlstore.SQLite(db, sqlstore.Options(opts))
	return newOutbox(s, err, opts, func(l sqllock.Options) locks { return sqllock.SQLite(db, l) })
}
