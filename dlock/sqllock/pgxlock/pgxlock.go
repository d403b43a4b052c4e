// Package pgxlock is sqllock's store on Postgres with pgx itself, without database/sql between
// them.
//
//	lock := pgxlock.New(pool, sqllock.Options{})
//	defer lock.Close()
//
// It opens a small pool of its own, made from the settings of the one that you pass in: an
// application that has all its connections in use then costs no lease. Its statements are sent
// without being prepared, so that each is one round trip and a PgBouncer in transaction mode does
// no harm. The promises are those of package sqllock.
package pgxlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/dlock/sqllock"
)

// maxConns is enough where a call lasts as long as a round trip in one data centre and a commit:
// four connections then make thousands of calls a second. A database that is 40 ms away makes a
// hundred: the 64 attempts that a host may have under way are then too many at once.
const maxConns = 4

// maxConnectTime bounds how long it takes to connect.
const maxConnectTime = 2 * time.Second

// New returns a store on the database of pool, which stays the caller's to close. It does not call
// the server, so it works while that is down. Faults of the options are reported by Check, which
// dlock.NewSession and timer.New call.
//
// From the settings of pool it takes everything but: the number of connections (at most 4), how
// statements are sent (QueryExecModeExec, or the simple protocol if pool uses that), the time to
// connect (at most 2 s), and the hooks for taking a connection out of the pool and putting it back.
// Of a tracer it takes what concerns queries, and hides their arguments: tokens of leases are among
// them.
func New(pool *pgxpool.Pool, opts sqllock.Options) *sqllock.Store {
	if pool == nil {
		return sqllock.PostgresOn(broken{errors.New("pgxlock: no pool: pass a *pgxpool.Pool")}, opts)
	}
	config := pool.Config()
	config.MaxConns, config.MinConns, config.MinIdleConns = min(config.MaxConns, maxConns), 0, 0
	// also instead of BeforeAcquire
	config.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { return true, nil }
	config.AfterRelease = nil
	// it would be a second round trip
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	// A dial that nobody answers keeps its place in the pool until it ends: with the two minutes
	// that are usual, a network that was down for seconds would be down for minutes.
	if t := config.ConnConfig.ConnectTimeout; t <= 0 || t > maxConnectTime {
		config.ConnConfig.ConnectTimeout = maxConnectTime
	}
	if config.ConnConfig.DefaultQueryExecMode != pgx.QueryExecModeSimpleProtocol {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	if t := config.ConnConfig.Tracer; t != nil {
		config.ConnConfig.Tracer = discreet{t}
	}
	d := newDriver()
	config.ConnConfig.DialFunc = d.dialer(config.ConnConfig.DialFunc)
	var err error
	if d.pool, err = pgxpool.NewWithConfig(context.Background(), config); err != nil {
		return sqllock.PostgresOn(broken{fmt.Errorf("pgxlock: %w", err)}, opts)
	}
	return sqllock.PostgresOn(d, opts)
}

// broken is a driver that could not be made.
type broken struct{ err error }

func (b broken) Check() error { return b.err }

func (b broken) QueryRow(context.Context, string, []any, ...any) error { return b.err }
func (b broken) Exec(context.Context, string) error                    { return b.err }
func (b broken) Close() error                                          { return nil }
