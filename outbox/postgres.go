package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/dlock/sqllock/pgxlock"
	"github.com/tickslot/tickslot/internal/pgxkit"
	"github.com/tickslot/tickslot/outbox/internal/sqlstore"
)

const (
	// maxOwn is how many connections relays have of their own: one call each for Due, Mark, Stats
	// and Sweep.
	maxOwn = 4
	// idleFor is how long an own connection stays open that nobody uses.
	idleFor = 30 * time.Second
)

// Postgres returns an outbox on Postgres 13 or newer, with the encoding UTF8. It does not call the
// server, and the pool stays the caller's.
//
// Relays have up to four connections of their own, which they make with the settings of the pool
// when they need them, another one for LISTEN, and up to four for the locks that say who delivers.
// They give an attempt to connect up after 2 s, or the pool's ConnectTimeout if it is at most 10 s.
// So a sink that uses up the pool cannot keep a relay from writing what it has delivered. Append
// and Inbox.Once use the connection of their transaction.
//
// Behind a PgBouncer in transaction mode, set pgx.QueryExecModeExec, or
// pgx.QueryExecModeSimpleProtocol. Relays hear no NOTIFY through it: they notice that, and look for
// messages at least every RelayConfig.PollInterval.
//
// docs/outbox-rights.md has the rights that each role needs in the database.
func Postgres(pool *pgxpool.Pool, opts Options) *Outbox {
	if pool == nil {
		return &Outbox{fault: fmt.Errorf("outbox: %w: there is no pool: pass a *pgxpool.Pool", dlock.ErrSetup)}
	}
	config := pgxkit.OwnPool(pool, maxOwn)
	connect := func(ctx context.Context) (*pgx.Conn, error) { return pgxkit.Connect(ctx, config) }
	// Not a pgxpool.Pool: a sql.DB counts for Relay.Checks which of its connections are in use, also
	// by attempts to connect, and ends such an attempt with its call.
	with := []stdlib.OptionOpenDB{stdlib.OptionShouldPing(func(context.Context, stdlib.ShouldPingParams) bool {
		return false // it would be a second round trip
	})}
	if config.BeforeConnect != nil {
		with = append(with, stdlib.OptionBeforeConnect(config.BeforeConnect))
	}
	if config.AfterConnect != nil {
		with = append(with, stdlib.OptionAfterConnect(config.AfterConnect))
	}
	db := stdlib.OpenDB(*config.ConnConfig, with...)
	db.SetMaxOpenConns(maxOwn)
	db.SetMaxIdleConns(maxOwn)
	db.SetConnMaxIdleTime(idleFor)
	opts = opts.withDefaults()
	s, err := sqlstore.Postgres(db, connect, sqlstore.Options(opts))
	o := newOutbox(s, err, opts, func(l sqllock.Options) locks { return pgxlock.New(pool, l) })
	o.closeOwn = db.Close
	return o
}

// maxTableName leaves room for the suffixes of tables and indexes.
const maxTableName = 36

// newOutbox adds to a store its locks, in a table beside it.
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
