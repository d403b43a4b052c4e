// Package pgxoutbox provides an Outbox on Postgres, for a *pgxpool.Pool.
//
//	box := pgxoutbox.New(pool, outbox.Options{})
//	_, err := box.Append(ctx, pgxoutbox.Tx(tx), message)
//
// It is a separate package so that a program with its messages in another database does not link
// pgx. Package outbox documents the promises.
package pgxoutbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/dlock/sqllock/pgxlock"
	"github.com/tickslot/tickslot/internal/pgxkit"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/internal/sqlstore"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

const (
	// maxOwn limits the connections that relays open for their own calls: one each for Due,
	// Mark, Stats and Sweep.
	maxOwn = 4
	// idleFor is how long an unused connection stays open.
	idleFor = 30 * time.Second
)

// New returns an Outbox on Postgres 13 or newer, with the encoding UTF8. New does not call the
// server. The pool still belongs to the caller, who closes it.
//
// Relays open separate connections with the settings of the pool when they need them: up to four
// for calls, one for LISTEN, and up to four for the locks that decide which relay delivers. So a
// sink that uses up the pool cannot keep a relay from writing the results of its deliveries. An
// attempt to connect fails after 2 s, or after the pool's ConnectTimeout if that is at most 10 s.
// Append and Inbox.Once use the connection of their transaction.
//
// Behind a PgBouncer in transaction mode, set pgx.QueryExecModeExec or
// pgx.QueryExecModeSimpleProtocol. NOTIFY does not reach relays through it. They notice that and
// poll for messages at least every RelayConfig.PollInterval.
//
// docs/sql.md lists the privileges that each role needs.
func New(pool *pgxpool.Pool, opts outbox.Options) *outbox.Outbox {
	open := func(l sqllock.Options) *sqllock.Store { return pgxlock.New(pool, l) }
	if pool == nil {
		return outbox.PostgresOn(sqlstore.Pool{}, open, opts)
	}
	config := pgxkit.OwnPool(pool, maxOwn, "tickslot outbox")
	// Do not use a pgxpool.Pool: a sql.DB counts, for Relay.Checks, how many of its connections are
	// in use, including attempts to connect, and it ends such an attempt when its call ends.
	with := []stdlib.OptionOpenDB{stdlib.OptionShouldPing(func(context.Context, stdlib.ShouldPingParams) bool {
		return false // a ping would be a second round trip
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
	listen := func(ctx context.Context, channel string, woken func()) error {
		conn, err := pgxkit.Connect(ctx, config)
		if err != nil {
			return err
		}
		return pgxkit.Listen(ctx, conn, channel, woken)
	}
	return outbox.PostgresOn(sqlstore.Pool{DB: db, Transact: pgxkit.TransactSQL, Listen: listen}, open, opts)
}

// Tx wraps a pgx transaction for Append and Inbox.Once. Their statements are not prepared, so each
// takes one round trip.
func Tx(tx pgx.Tx) outbox.Tx { return transaction{tx} }

type transaction struct{ tx pgx.Tx }

// QueryRow implements store.Tx.
func (t transaction) QueryRow(ctx context.Context, query string, args ...any) store.Row {
	return pgxkit.QueryRow(ctx, t.tx, query, args...)
}

// Exec implements store.Tx.
func (t transaction) Exec(ctx context.Context, query string, args ...any) (rows int64, err error) {
	return pgxkit.Exec(ctx, t.tx, query, args...)
}
