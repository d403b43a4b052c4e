// Package pgxdurable is durable's store on Postgres, for a *pgxpool.Pool.
//
//	store := pgxdurable.New(pool, durable.Options{})
//	id, err := store.Trigger(ctx, pgxdurable.Tx(tx), "report", payload, durable.TriggerOptions{})
//
// It is beside durable, so that a program with its runs in SQLite does not link pgx. Its promises
// are those of package durable.
package pgxdurable

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/internal/postgres"
	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/pgxkit"
)

// New returns a store on Postgres 13 or newer, in a database with the encoding UTF8. It does
// not call the server, and the pool stays the caller's.
//
// Each call is one transaction and one round trip. With pgx's default mode, a connection prepares
// each statement before it first sends it, which takes one more round trip. Behind a PgBouncer in
// transaction mode, set pgx.QueryExecModeExec, or pgx.QueryExecModeSimpleProtocol: then nothing is
// prepared. (pgx.QueryExecModeDescribeExec does not work: its two round trips may reach two
// connections of the server.) LISTEN does not work through it, so workers find runs that others
// have queued within PollInterval.
//
// Claims and results are committed with synchronous_commit on, whatever the default is. The tables
// have autovacuum settings of their own. VACUUM cannot remove old versions of rows while a
// transaction stays open in the same database: set idle_in_transaction_session_timeout.
//
// A Store has up to four connections of its own, which it makes with the settings of the pool
// (BeforeConnect and AfterConnect are called, PrepareConn and AfterRelease are not) when its
// workers need them, and each worker another one for LISTEN. An attempt to connect ends after 2 s,
// or after the pool's ConnectTimeout if that is at most 10 s. So handlers that use all connections
// of the pool cost no lease. Those that nobody uses for ten seconds are closed. Other calls, such
// as Trigger and Control, take one of the pool.
//
// Time-outs, isolation level, search_path and formats that the server has for the role or the
// database make no difference. A role that is read-only (default_transaction_read_only) stays so.
//
// docs/sql.md has the rights that each role needs in the database. A program that only triggers
// reads no payload of others, and must call neither Migrate nor Verify, which read all tables; it
// needs UPDATE (key) to take a key from a run that has had it for KeyFor. An error of a missing
// right (dlock.ErrSetup) names the table and the rights; in a transaction of the caller, which is
// then aborted, the table only.
func New(pool *pgxpool.Pool, opts durable.Options) *durable.Store {
	s, err := postgres.New(pool, postgres.Options{TableName: cmp.Or(opts.TableName, durable.DefaultTableName),
		Schema: opts.Schema})
	return durable.StoreOn(s, err)
}

// Tx wraps a transaction of pgx for Trigger. The statements of Trigger are not prepared, so each
// call is one round trip.
func Tx(tx pgx.Tx) durable.Tx { return transaction{tx} }

type transaction struct{ tx pgx.Tx }

// QueryRow implements store.Tx.
func (t transaction) QueryRow(ctx context.Context, query string, args ...any) store.Row {
	return pgxkit.QueryRow(ctx, t.tx, query, args...)
}
