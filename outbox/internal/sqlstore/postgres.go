package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tickslot/tickslot/internal/pgxkit"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

var errDriver = errors.New("outbox: the *sql.DB is not of pgx (github.com/jackc/pgx/v5/stdlib)")

// pipelined sends a transaction as a whole, in one round trip, with a connection of pgx.
func pipelined(ctx context.Context, conn *sql.Conn, list []sqlkit.Statement, row func(store.Row) error) error {
	return conn.Raw(func(driver any) error {
		c, ok := driver.(*stdlib.Conn)
		if !ok {
			return errDriver
		}
		return pgxkit.Transact(ctx, c.Conn(), func(b *pgx.Batch) {
			for i, s := range list {
				q := b.Queue(s.Text, s.Args...)
				if i == len(list)-1 {
					pgxkit.EachRow(q, func(rows pgx.Rows) error { return row(rows) })
				}
			}
		})
	})
}

// Notify implements store.Producer. Other databases than Postgres cannot wake anybody.
func (s *Store) Notify(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	if s.dialect != sqlkit.Postgres {
		return nil
	}
	_, err := answer(ctx, s, reading, "notify", "", sqlkit.Params{"channel": s.channel},
		func(store.Row, *struct{}) error { return nil })
	return err
}

// Listen implements store.Relay. It hears nothing behind a PgBouncer in transaction mode, and does
// not know.
func (s *Store) Listen(ctx context.Context, woken func()) error {
	if s.connect == nil {
		return store.ErrNoListen
	}
	conn, err := s.connect(ctx)
	if err == nil {
		err = pgxkit.Listen(ctx, conn, s.channel, woken)
	}
	if err != nil {
		return s.explain(err)
	}
	return nil
}
