package outbox

import (
	"database/sql"

	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/outbox/internal/sqlstore"
)

// SQLServer returns an Outbox on Microsoft SQL Server 2017 or newer, with any driver for
// database/sql that numbers its parameters @p1, @p2 and so on, as microsoft/go-mssqldb does. It
// does not call the server.
//
// SQLServer is EXPERIMENTAL: it has not been run against a server. Its statements, and the
// statements of its locks (see sqllock.SQLServer), follow the documentation, and only their texts
// are tested. Run your own tests before you rely on it, and tell us the results. It may change or
// be removed in any release.
//
// Until the transaction ends, Append and Inbox.Once lock not only their row but also the gap
// between its neighbors in the index of IDs. Calls whose IDs fall into the same gap wait; in a
// small table, most of them do. Two transactions with two calls each can deadlock, and the server
// then ends one with an error that says to repeat it. So make these calls last in the transaction,
// and be ready to repeat it.
//
// Relays use db, so give the sinks a separate pool, or allow db more connections than the sinks use
// at the same time. Otherwise, a relay cannot write the results of its deliveries.
//
// Processes cannot wake each other: a relay finds a message that another process has appended
// within RelayConfig.PollInterval.
func SQLServer(db *sql.DB, opts Options) *Outbox {
	opts = opts.withDefaults()
	s, err := sqlstore.SQLServer(db, sqlstore.Options(opts))
	return newOutbox(s, err, opts, func(l sqllock.Options) locks { return sqllock.SQLServer(db, l) })
}
