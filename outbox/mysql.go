package outbox

import (
	"database/sql"

	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/outbox/internal/sqlstore"
)

// MySQL returns an Outbox on MySQL 8.0 or MariaDB 10.6, or newer, with any driver for database/sql.
// It does not call the server. With go-sql-driver/mysql, add interpolateParams=true to the data
// source name. Otherwise, most statements take two round trips.
//
// Relays use db, so give the sinks a separate pool, or allow db more connections than the sinks use
// at the same time. Otherwise, a relay cannot write the results of its deliveries.
//
// If several transactions append a message with the same ID, one of them continues and the others
// wait. If that transaction is rolled back, MySQL may end a waiting one with a deadlock error
// (1213). Then repeat the ended transaction.
//
// If a host is cut off, the server keeps its transaction and locks until wait_timeout, which is 8
// hours by default. If a relay was writing results, the next relay delivers those messages again
// and cannot write their results until then. Other messages are not affected. But a change of the
// table's schema has to wait, and all further statements wait for that change. So give relays a
// short wait_timeout by adding wait_timeout=60 to their data source name.
//
// Processes cannot wake each other: a relay finds a message that another process has appended
// within RelayConfig.PollInterval.
func MySQL(db *sql.DB, opts Options) *Outbox {
	opts = opts.withDefaults()
	s, err := sqlstore.MySQL(db, sqlstore.Options(opts))
	return newOutbox(s, err, opts, func(l sqllock.Options) locks { return sqllock.MySQL(db, l) })
}
