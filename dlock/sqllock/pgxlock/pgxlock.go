// Package pgxlock provides sqllock's store on Postgres with pgx itself, without database/sql.
//
//	store := pgxlock.New(pool, sqllock.Options{})
//	defer store.Close()
//
// It opens a small pool of its own with the settings of yours, so an application that uses all its
// connections loses no lease. Each call is one message, a query of the simple protocol: it prepares
// nothing, takes one round trip, works through a PgBouncer in transaction mode, and leaves nothing
// locked when it is cut off in the middle. It keeps the promises of package sqllock.
package pgxlock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/internal/pgxkit"
)

// maxConns is enough for thousands of calls a second within one data center, where a call takes a
// round trip and a commit. With a database 40 ms away, it allows about a hundred calls a second,
// although a host may need 64 acquires at the same time.
const maxConns = 4

// New returns a store on the database of pool, which the caller closes. It does not call the
// server, so it works while the server is down. Check reports faults of the options;
// dlock.NewSession and timer.New call it.
//
// New copies the settings of pool, with these exceptions: the number of connections (at most 4),
// how statements are sent, the time to connect (2 s, or pool's if it is at most 10 s:
// connect_timeout in its URL), and the hooks that run when a connection leaves or enters the pool.
// It keeps a tracer of queries, but hides their arguments, which contain the tokens of leases.
//
// If a session has standard_conforming_strings off, or another client_encoding than UTF8, calls are
// sent by QueryExecModeExec. If such a call is cut off in the middle, its rows stay locked until
// the connection is closed.
//
// If the server has not answered a call when its context ends, the call keeps its connection for up
// to a second more. If the answer comes within that second, the connection stays. Otherwise all
// connections are replaced.
func New(pool *pgxpool.Pool, opts sqllock.Options) *sqllock.Store {
	if pool == nil {
		return sqllock.PostgresOn(broken{errors.New("pgxlock: no pool: pass a *pgxpool.Pool")}, opts)
	}
	config := pgxkit.OwnPool(pool, maxConns, "tickslot locks")
	if config.ConnConfig.DefaultQueryExecMode != pgx.QueryExecModeSimpleProtocol {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	if t := config.ConnConfig.Tracer; t != nil {
		config.ConnConfig.Tracer = redactingTracer{t}
	}
	d := newDriver()
	config.ConnConfig.DialFunc = d.dialer(config.ConnConfig.DialFunc)
	var err error
	if d.pool, err = pgxpool.NewWithConfig(context.Background(), config); err != nil {
		return sqllock.PostgresOn(broken{fmt.Errorf("pgxlock: %w", err)}, opts)
	}
	return sqllock.PostgresOn(d, opts)
}

// broken is the driver of a store that could not be opened.
type broken struct{ err error }

func (b broken) Check() error { return b.err }

func (b broken) QueryRow(context.Context, string, []any, ...any) error { return b.err }
func (b broken) QueryRowAlone(context.Context, string, []any, ...any) error {
	return b.err
}
func (b broken) WithDB(func(*sql.DB) error) error { return b.err }
func (b broken) Close() error                     { return nil }
