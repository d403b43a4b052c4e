package sqlkit

import (
	"context"
	"database/sql"
)

// A Querier is a *sql.Conn or a *sql.Tx.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// QueryRow executes a statement that returns one row and scans its columns into dest.
//
// QueryRowContext of database/sql leaves the end of the result to Rows.Close, where
// go-sql-driver/mysql ignores ctx. If the server hung in the middle of its answer, the call would
// hang as well.
func QueryRow(ctx context.Context, q Querier, query string, args []any, dest ...any) error {
	found := false
	err := EachRow(ctx, q, query, args, func(rows *sql.Rows) error {
		if found {
			return nil
		}
		found = true
		return rows.Scan(dest...)
	})
	if err == nil && !found {
		err = sql.ErrNoRows
	}
	return err
}

// EachRow calls row for each row of a statement's result until row fails, and reads the result to
// its end.
func EachRow(ctx context.Context, q Querier, query string, args []any, row func(*sql.Rows) error) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	var failed error
	for more := true; more; more = rows.NextResultSet() { // the end of a procedure is a further result set
		for rows.Next() {
			if failed == nil {
				failed = row(rows)
			}
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return failed
}
