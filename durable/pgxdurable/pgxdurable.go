// Package pgxdurable provides durable's store on Postgres, for a *pgxpool.Pool.
//
//	store := pgxdurable.New(pool, durable.Options{})
//	id, err := store.Trigger(ctx, pgxdurable.Tx(tx), "report", payload, durable.TriggerOptions{})
//
// It is a separate package so that a program with its runs in SQLite does not link pgx. Package
// durable documents the promises.
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

// New returns a Store on Postgres 13 or newer, in a database with the encoding UTF8. New does not
// call the server. The pool still belongs to the caller, who closes it.
//
// Each call is one transaction and one round trip. With pgx's default mode, a connection prepares
// each statement before it first sends it, which takes one more round trip. Behind a PgBouncer in
// transaction mode, set pgx.QueryExecModeExec or pgx.QueryExecModeSimpleProtocol, which prepare
// nothing. (pgx.QueryExecModeDescribeExec does not work, because its two round trips may reach two
// connections of the server.) LISTEN does not work through such a PgBouncer, so workers find runs
// that others have queued only by polling, within PollInterval.
//
// Claims and results are committed with synchronous_commit on, regardless of the default. The
// tables have their own autovacuum settings. VACUUM cannot remove old row versions while a
// transaction stays open in the same database, so set idle_in_transaction_session_timeout.
//
// A Store opens up to four separate connections when its workers need them, and one more for each
// worker's LISTEN. So no lease is lost when handlers use all connections of the pool. These
// connections have the settings of the pool: BeforeConnect and AfterConnect are called, but
// PrepareConn and AfterRelease are not. An attempt to connect ends after 2 s, or after the pool's
// ConnectTimeout if that is at most 10 s. A connection is closed after ten seconds without use.
// Other calls, such as Trigger and Control, take a connection of the pool.
//
// Time-outs, isolation level, search_path and formats that the server sets for the role or the
// database have no effect. A read-only role (default_transaction_read_only) stays read-only.
//
// docs/sql.md lists the privileges that each role needs. The role of a program that only triggers
// cannot read payloads. It must not call Migrate or Verify, which read all tables. It needs UPDATE
// (key) to take a key from a run that has had it for KeyFor. If a privilege is missing, the error
// (dlock.ErrSetup) names the table and the privileges. In the caller's transaction, which is then
// aborted, the error names only the table.
func New(pool *pgxpool.Pool, opts durable.Options) *durable.Store {
	s, err := postgres.New(pool, postgres.Options{TableName: cmp.Or(opts.TableName, durable.DefaultTableName),
		Schema: opts.Schema})
	return durable.StoreOn(s, err)
}

// Tx wraps a pgx transaction for Trigger. The statements of Trigger are not prepared, so each call
// is one round trip.
func Tx(tx pgx.Tx) durable.Tx { return transaction{tx} }

type transaction struct{ tx pgx.Tx }

// QueryRow implements store.Tx.
func (t transaction) QueryRow(ctx context.Context, query string, args ...any) store.Row {
	return pgxkit.QueryRow(ctx, t.tx, query, args...)
}
