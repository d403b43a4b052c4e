package pgxkit

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tickslot/tickslot/internal/sqlkit"
)

var errDriver = errors.New("the *sql.DB is not of pgx (github.com/jackc/pgx/v5/stdlib)")

// TransactSQL is like Transact, for a pgx connection of database/sql. It calls row for each row in
// the result of the last statement.
func TransactSQL(ctx context.Context, conn *sql.Conn, list []sqlkit.Statement,
	row func(interface{ Scan(dest ...any) error }) error) error {
	return conn.Raw(func(driver any) error {
		c, ok := driver.(*stdlib.Conn)
		if !ok {
			return errDriver
		}
		return Transact(ctx, c.Conn(), func(b *pgx.Batch) {
			for i, s := range list {
				q := b.Queue(s.Text, s.Args...)
				if i == len(list)-1 {
					EachRow(q, func(rows pgx.Rows) error { return row(rows) })
				}
			}
		})
	})
}
