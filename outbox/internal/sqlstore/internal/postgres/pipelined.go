package postgres

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tickslot/tickslot/internal/pgxkit"
	"github.com/tickslot/tickslot/outbox/internal/sqlstore/internal/dialect"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

var errDriver = errors.New("outbox: the *sql.DB is not of pgx (github.com/jackc/pgx/v5/stdlib)")

// pipelined sends a transaction as a whole, in one round trip, with a connection of pgx.
func pipelined(ctx context.Context, conn *sql.Conn, list []dialect.Statement, row func(store.Row) error) error {
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
