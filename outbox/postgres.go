package outbox

import (
	"context"
	"database/sql"
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
	config := pool.Config()
	pgxkit.BoundConnecting(config.ConnConfig)
	before, after := config.BeforeConnect, config.AfterConnect
	with := []stdlib.OptionOpenDB{stdlib.OptionShouldPing(func(context.Context, stdlib.ShouldPingParams) bool {
		return false // it would be a second round trip
	})}
	if before != nil {
		with = append(with, stdlib.OptionBeforeConnect(before))
	}
	if after != nil {
		with = append(with, stdlib.OptionAfterConnect(after))
	}
	db := own(stdlib.OpenDB(*config.ConnConfig, with...))
	connect := func(ctx context.Context) (*pgx.Conn, error) {
		c := config.ConnConfig.Copy()
		if before != nil {
			if err := before(ctx, c); err != nil {
				return nil, err
			}
		}
		conn, err := pgx.ConnectConfig(ctx, c)
		if err == nil && after != nil {
			if err = after(ctx, conn); err != nil {
				_ = conn.Close(ctx)
			}
		}
		return conn, err
	}
	opts = opts.withDefaults()
	s, err := sqlstore.Postgres(db, connect, sqlstore.Options(opts))
	o := newOutbox(s, err, opts, func(l sqllock.Options) locks { return pgxlock.New(pool, l) })
	o.own = db
	return o
}

// own sets up a pool that only relays use.
func own(db *sql.DB) *sql.DB {
	db.SetMaxOpenConns(maxOwn)
	db.SetMaxIdleConns(maxOwn)
	db.SetConnMaxIdleTime(idleFor)
	return db
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
