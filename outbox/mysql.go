package outbox

import (
	"database/sql"

	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/outbox/internal/sqlstore"
)

// MySQL returns an outbox on MySQL 8.0 or MariaDB 10.6, or newer, with any driver for
// database/sql. It does not call the server. With go-sql-driver/mysql add interpolateParams=true to
// the data source name: otherwise most statements are two round trips.
//
// Relays use db, so give the sinks a pool of their own, or allow db more connections than sinks use
// at once: otherwise a relay cannot write what it has delivered.
//
// Two transactions that append a message with the same ID at once are done one after the other. If
// the first is rolled back and others wait, MySQL may end one of them as a deadlock (1213): repeat
// that transaction.
//
// The server keeps the transaction of a host that was cut off, with its locks, until wait_timeout:
// 8 hours by default. If that was a relay which was writing results, the next relay delivers these
// messages again, and cannot write their results meanwhile; all others go their way, but a change
// of the table waits, and everybody else behind it. Give the connections of relays a short one: add
// wait_timeout=60 to their data source name.
//
// Processes cannot wake each other: a message that another process has appended is found within
// RelayConfig.PollInterval.
func MySQL(db *sql.DB, opts Options) *Outbox {
	opts = opts.withDefaults()
	s, err := sqlstore.MySQL(db, sqlstore.Options(opts))
	return newOutbox(s, err, opts, func(l sqllock.Options) locks { return sqllock.MySQL(db, l) })
}
