package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// server is a Postgres, MySQL or SQL Server database. It repeats statements that conflicted with
// another transaction, because the database has rolled them back.
type server struct {
	dialect sqlkit.Dialect
	pool    Pool
}

func (s server) do(ctx context.Context, w way, list []sqlkit.Statement, begin func(), row func(store.Row) error) error {
	return sqlkit.Repeat(ctx, func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return sqlkit.With(ctx, s.pool.DB, func(conn *sql.Conn) error {
			begin()
			if s.dialect == sqlkit.Postgres {
				return s.pool.Transact(ctx, conn, list, row)
			}
			list := slices.Clone(list)
			for i := range list {
				list[i].Text = bound(ctx, list[i].Text)
			}
			if len(list) == 1 || w == counting { // each statement is its own transaction
				return oneByOne(ctx, conn, list, row)
			}
			tx, err := conn.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			if err := oneByOne(ctx, tx, list, row); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		})
	})
}

// oneByOne executes statements and calls row for each row of the last statement's answer.
func oneByOne(ctx context.Context, q interface {
	sqlkit.Querier
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}, list []sqlkit.Statement, row func(store.Row) error) error {
	last := len(list) - 1
	for _, s := range list[:last] {
		if _, err := q.ExecContext(ctx, s.Text, s.Args...); err != nil {
			return err
		}
	}
	return sqlkit.EachRow(ctx, q, list[last].Text, list[last].Args, func(rows *sql.Rows) error { return row(rows) })
}

// bound returns a statement that ends a little before ctx does. MariaDB executes the text of
// {bounded}, which MySQL ignores. MySQL obeys the hints of {hint}, which MariaDB ignores. {bounded}
// also turns off MariaDB's CHECK constraints. MariaDB checks them on every change of a row, so the
// result of a row that was inserted without checks could never be written. MySQL has no such rows.
// {wait} is the LOCK_TIMEOUT of SQL Server, which cannot be a parameter.
func bound(ctx context.Context, text string) string {
	limit := sqlkit.MaxWait(ctx, time.Minute)
	ms, s := limit.Milliseconds(), max(1, int64(limit/time.Second))
	return strings.NewReplacer(
		"{bounded}", fmt.Sprintf(
			"/*M! SET STATEMENT max_statement_time = %d / 1000, check_constraint_checks = 0 FOR */", ms),
		"{hint}", fmt.Sprintf("/*+ SET_VAR(lock_wait_timeout = %d) MAX_EXECUTION_TIME(%d) */", s, ms),
		"{wait}", fmt.Sprint(ms),
	).Replace(text)
}
