package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// server executes statements on a server. Those that were in the way of another transaction are
// executed again, until ctx ends: they were undone then.
type server struct {
	db    *sql.DB
	bound func(ctx context.Context, text string) string // returns a statement that ends before ctx does; nil: as it is
	// transact carries out statements in one transaction; nil: in the way of database/sql.
	transact func(ctx context.Context, conn *sql.Conn, list []statement, row func(store.Row) error) error
}

// eachRow executes a statement, and calls row for each row of its answer.
func eachRow(ctx context.Context, q sqlkit.Querier, s statement, row func(store.Row) error) error {
	return sqlkit.EachRow(ctx, q, s.text, s.args, func(rows *sql.Rows) error { return row(rows) })
}

func (v server) read(ctx context.Context, s statement, begin func(), row func(store.Row) error) error {
	return v.do(ctx, func() []statement { return []statement{s} }, transaction, begin, row)
}

func (v server) write(ctx context.Context, list func() []statement, begin func(), row func(store.Row) error) error {
	return v.do(ctx, list, transaction, begin, row)
}

func (v server) writeAndCount(ctx context.Context, list func() []statement, begin func(),
	row func(store.Row) error) error {
	return v.do(ctx, list, oneByOne, begin, row)
}

// do executes one statement, or some in a way.
func (v server) do(ctx context.Context, list func() []statement,
	way func(context.Context, *sql.Conn, []statement, func(store.Row) error) error, begin func(),
	row func(store.Row) error) error {
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
			if v.transact != nil {
				return v.transact(ctx, conn, statements, row)
			}
			if len(statements) == 1 { // it is a transaction of its own
				return eachRow(ctx, conn, statements[0], row)
			}
			return way(ctx, conn, statements, row)
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

// oneByOne executes statements on one connection, each a transaction of its own.
func oneByOne(ctx context.Context, conn *sql.Conn, list []statement, row func(store.Row) error) error {
	last := len(list) - 1
	for _, s := range list[:last] {
		if _, err := conn.ExecContext(ctx, s.text, s.args...); err != nil {
			return err
		}
	}
	return eachRow(ctx, conn, list[last], row)
}

func transaction(ctx context.Context, conn *sql.Conn, list []statement, row func(store.Row) error) error {
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
	if err := eachRow(ctx, tx, list[last], row); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
