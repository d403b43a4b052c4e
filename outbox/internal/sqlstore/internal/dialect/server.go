package dialect

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// Server executes statements on a server. Those that were in the way of another transaction are
// executed again, until ctx ends: they were undone then.
type Server struct {
	DB    *sql.DB
	Bound func(ctx context.Context, text string) string // returns a statement that ends before ctx does; nil: as it is
	// Transact carries out statements in one transaction; nil: in the way of database/sql.
	Transact func(ctx context.Context, conn *sql.Conn, list []Statement, row func(store.Row) error) error
}

// Tables are those of a schema on a server.
func (v Server) Tables(s sqlmigrate.Schema) sqlmigrate.Tables {
	return sqlmigrate.Tables{Schema: s, Read: sqlmigrate.ReadDB(s.Dialect, v.DB),
		Up: func(ctx context.Context) error { return s.Up(ctx, v.DB) }}
}

// EachRow executes a statement, and calls row for each row of its answer.
func EachRow(ctx context.Context, q sqlkit.Querier, s Statement, row func(store.Row) error) error {
	return sqlkit.EachRow(ctx, q, s.Text, s.Args, func(rows *sql.Rows) error { return row(rows) })
}

func (v Server) Read(ctx context.Context, s Statement, begin func(), row func(store.Row) error) error {
	return v.do(ctx, func() []Statement { return []Statement{s} }, transaction, begin, row)
}

func (v Server) Write(ctx context.Context, list func() []Statement, begin func(), row func(store.Row) error) error {
	return v.do(ctx, list, transaction, begin, row)
}

func (v Server) WriteAndCount(ctx context.Context, list func() []Statement, begin func(),
	row func(store.Row) error) error {
	return v.do(ctx, list, oneByOne, begin, row)
}

// do executes one statement, or some in a way.
func (v Server) do(ctx context.Context, list func() []Statement,
	way func(context.Context, *sql.Conn, []Statement, func(store.Row) error) error, begin func(),
	row func(store.Row) error) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := sqlkit.With(ctx, v.DB, func(conn *sql.Conn) error {
			begin()
			statements := list()
			for i := range statements {
				if v.Bound != nil {
					statements[i].Text = v.Bound(ctx, statements[i].Text)
				}
			}
			if v.Transact != nil {
				return v.Transact(ctx, conn, statements, row)
			}
			if len(statements) == 1 { // it is a transaction of its own
				return EachRow(ctx, conn, statements[0], row)
			}
			return way(ctx, conn, statements, row)
		})
		if !Repeats(err) {
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
func oneByOne(ctx context.Context, conn *sql.Conn, list []Statement, row func(store.Row) error) error {
	last := len(list) - 1
	for _, s := range list[:last] {
		if _, err := conn.ExecContext(ctx, s.Text, s.Args...); err != nil {
			return err
		}
	}
	return EachRow(ctx, conn, list[last], row)
}

func transaction(ctx context.Context, conn *sql.Conn, list []Statement, row func(store.Row) error) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	last := len(list) - 1
	for _, s := range list[:last] {
		if _, err := tx.ExecContext(ctx, s.Text, s.Args...); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	if err := EachRow(ctx, tx, list[last], row); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// Repeats reports whether a statement that was not carried out because of another transaction can
// be carried out again.
func Repeats(err error) bool {
	state := sqlkit.State(err)
	return state == "40001" || state == "40P01" || sqlkit.MySQLNumber(err) == "1020"
}
