package outbox

import (
	"database/sql"

	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/outbox/internal/sqlstore"
)

// SQLite returns an outbox in a SQLite file, for the processes of one machine. It needs SQLite
// 3.38 or newer, and works with any driver for database/sql. It does not open the file.
//
// The file is that of the application, whose transactions append messages, see SQLTx. SQLite has
// one write lock per file: a call of a relay that finds it taken tries again about every
// millisecond, until its context ends. Keep the transactions of the application short, begin them
// with BEGIN IMMEDIATE, and have them wait for the lock (with modernc.org/sqlite: _txlock=immediate
// and _pragma=busy_timeout(5000) in the name of the file). SQLite refuses, as locked, a transaction
// that was begun otherwise and reads before it appends, if another one has written in between.
//
// Processes cannot wake each other: a message that another process has appended is found within
// RelayConfig.PollInterval. What package sqllock says of network file systems holds here, too.
//
// How durable a commit is, the application decides by PRAGMA synchronous: with normal, the latest
// messages may be lost with the changes they belong to when the machine loses power, though not
// when a process dies.
func SQLite(db *sql.DB, opts Options) *Outbox {
	opts = opts.withDefaults()
	s, err := sqlstore.SQLite(db, sqlstore.Options(opts))
	return newOutbox(s, err, opts, func(l sqllock.Options) locks { return sqllock.SQLite(db, l) })
}
