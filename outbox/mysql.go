package outbox

import (
	"database/sql"

	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/outbox/internal/sqlstore"
)

// MySQL returns an Outbox on MySQL 8.0 or MariaDB 10.6, or newer, with any driver for database/sql.
// It does not call the server. With go-sql-driver/mysql add interpolateParams=true to the data
// source name: otherwise most statements take two round trips.
//
// Relays use db, so give the sinks a pool of their own, or allow db more connections than sinks use
// at the same time: otherwise a relay cannot write what it has delivered.
//
// If several transactions append a message with the same ID, one at a time continues and the others
// wait. If that one is rolled back, MySQL may end one that waits with a deadlock error (1213):
// repeat that transaction.
//
// If a host is cut off, the server keeps its transaction, with its locks, until wait_timeout: 8
// hours by default. If a relay was writing results, the next relay delivers those messages again,
// and cannot write their results until then. Other messages are not affected, but a change of the
// table's schema waits, and all further statements behind it. So give relays a short wait_timeout:
// add wait_timeout=60 to their data source name.
//
// Processes cannot wake each other: a relay finds a message that another process has appended
// within RelayConfig.PollInterval.
func MySQL(db *sql.DB, opts Options) *Outbox {
	opts = opts.withDefaults()
	s, err := sqlstore.MySQL(db, sqlstore.Options(opts))
	return newOutbox(s, err, opts, func(l sqllock.Options) locks { return sqllock.MySQL(db, l) })
}
