package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tickslot/tickslot/outbox/internal/sqlstore/internal/dialect"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// rollbackTimeout bounds how long a connection takes to leave a transaction that has failed.
const rollbackTimeout = time.Second

var errDriver = errors.New("outbox: the *sql.DB is not of pgx (github.com/jackc/pgx/v5/stdlib)")

// Planned has the planner go through the indexes in their order. Without statistics, which a table
// has not that was filled a minute ago, it takes the few messages that it expects all at once, and
// sorts them: 20,000 that wait cost 50 ms for each 32 of them. It has to be in the transaction,
// because behind a PgBouncer the next one has another connection.
const Planned = "SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), " +
	"set_config('jit', 'off', true)"

// pipelined sends a transaction as a whole, in one round trip, with a connection of pgx.
func pipelined(ctx context.Context, conn *sql.Conn, list []dialect.Statement, row func(store.Row) error) error {
	return conn.Raw(func(driver any) error {
		c, ok := driver.(*stdlib.Conn)
		if !ok {
			return errDriver
		}
		return sendAll(ctx, c.Conn(), list, row)
	})
}

func sendAll(ctx context.Context, conn *pgx.Conn, list []dialect.Statement, row func(store.Row) error) error {
	var b pgx.Batch
	b.Queue("BEGIN ISOLATION LEVEL READ COMMITTED")
	b.Queue(Planned)
	for i, s := range list {
		q := b.Queue(s.Text, s.Args...)
		if i < len(list)-1 {
			continue
		}
		q.Query(func(rows pgx.Rows) error {
			for rows.Next() {
				if err := row(rows); err != nil {
					return err
				}
			}
			return rows.Err()
		})
	}
	b.Queue("COMMIT").Exec(func(tag pgconn.CommandTag) error {
		if tag.String() != "COMMIT" {
			return fmt.Errorf("the transaction was not committed, but %q", tag)
		}
		return nil
	})
	err := conn.SendBatch(ctx, &b).Close()
	if err != nil && !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		if _, err := conn.Exec(ctx, "ROLLBACK"); err != nil {
			_ = conn.Close(ctx)
		}
	}
	return err
}
