package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"strings"
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
	return v.write(ctx, func() []statement { return []statement{s} }, begin, row)
}

func (v server) write(ctx context.Context, list func() []statement, begin func(), row func(store.Row) error) error {
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
			if strings.HasPrefix(statements[1].text, rowCount) {
				return counting(ctx, conn, statements, row)
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

// rowCount is how a statement begins that asks how many rows the one before has changed.
const rowCount = "SELECT ROW_COUNT()"

// counting executes a statement that writes and one that counts. It needs no transaction, and must
// not have one: if the network of this host fails within it, the server keeps the transaction with
// its locks for as long as it does not notice, hours by default, and those of a sweep are in the
// way of every message that is dispatched.
func counting(ctx context.Context, conn *sql.Conn, list []statement, row func(store.Row) error) error {
	if _, err := conn.ExecContext(ctx, list[0].text, list[0].args...); err != nil {
		return err
	}
	return eachRow(ctx, conn, list[1], row)
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
