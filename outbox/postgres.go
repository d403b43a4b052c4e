package outbox

import (
	"fmt"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/outbox/internal/sqlstore"
)

// PostgresOn returns an Outbox with locks and with a pool for its relays, which Close closes. Only
// package pgxoutbox calls it, because the type of its first parameter is internal.
func PostgresOn(relays sqlstore.Pool, open func(sqllock.Options) *sqllock.Store, opts Options) *Outbox {
	opts = opts.withDefaults()
	s, err := sqlstore.Postgres(relays, sqlstore.Options(opts))
	o := newOutbox(s, err, opts, func(l sqllock.Options) locks { return open(l) })
	o.closeOwn = relays.DB.Close
	return o
}

// maxTableName leaves room for the suffixes of tables and indexes.
const maxTableName = 36

// newOutbox returns an Outbox on a store, with its locks in another table of the same database.
func newOutbox(s *sqlstore.Store, err error, opts Options, open func(sqllock.Options) locks) *Outbox {
	if err == nil && len(opts.TableName) > maxTableName {
		err = fmt.Errorf("outbox: %w: TableName %.60q: use at most %d bytes", dlock.ErrSetup, opts.TableName,
			maxTableName)
	}
	if err != nil {
		return &Outbox{fault: err}
	}
	return &Outbox{store: s, locks: &lazyLocks{open: func() locks {
		return open(sqllock.Options{TableName: opts.TableName + "_locks", Schema: opts.Schema})
	}}}
}

func (o Options) withDefaults() Options {
	orDefault(&o.TableName, DefaultTableName)
	return o
}
