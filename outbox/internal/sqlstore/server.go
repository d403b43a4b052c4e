package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/tickslot/tickslot/internal/sqlkit"
)

// server executes statements on a server. Those that were in the way of another transaction are
// executed again, until ctx ends: they were undone then.
type server struct {
	db    *sql.DB
	bound func(ctx context.Context, text string) string // returns a statement that ends before ctx does; nil: as it is
}

func (v server) read(ctx context.Context, s statement, begin func(), row func(*sql.Rows) error) error {
	return v.write(ctx, func() []statement { return []statement{s} }, begin, row)
}

func (v server) write(ctx context.Context, list func() []statement, begin func(), row func(*sql.Rows) error) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := sqlkit.With(ctx, v.db, func(conn *sql.Conn) error {
			begin()
			statements := list()
			for i := range statements {
				if v.bound != nil {
					statements[i].text = v.bound(ctx, statements[i].text)
				}
			}
			if len(statements) == 1 { // it is a transaction of its own
				return sqlkit.EachRow(ctx, conn, statements[0].text, statements[0].args, row)
			}
			return transaction(ctx, conn, statements, row)
		})
		if !repeats(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Millisecond):
		}
	}
}

func transaction(ctx context.Context, conn *sql.Conn, list []statement, row func(*sql.Rows) error) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	last := len(list) - 1
	for _, s := range list[:last] {
		if _, err := tx.ExecContext(ctx, s.text, s.args...); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	if err := sqlkit.EachRow(ctx, tx, list[last].text, list[last].args, row); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
