package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/tickslot/tickslot/internal/sqlkit"
)

// local is the context of all statements. No statement needs to be interrupted, because only locks
// take long in SQLite, and Go code waits for the locks.
var local = context.Background()

// none is the answer of a call without an answer.
type none = struct{}

// rows executes a statement and returns the rows of its answer. dest returns the destinations for
// the columns of a row.
func rows[R any](conn *sql.Conn, query string, dest func(*R) []any, args ...any) (list []R, err error) {
	err = sqlkit.EachRow(local, conn, query, args, func(rows *sql.Rows) error {
		var r R
		if err := rows.Scan(dest(&r)...); err != nil {
			return err
		}
		list = append(list, r)
		return nil
	})
	return list, err
}

// found executes a statement that returns at most one row, scans the row into dest, and reports
// whether there was one.
func found(conn *sql.Conn, query string, args []any, dest ...any) (bool, error) {
	err := sqlkit.QueryRow(local, conn, query, args, dest...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// exec executes a statement and returns the number of rows that it has written.
func exec(conn *sql.Conn, query string, args ...any) (int64, error) {
	result, err := conn.ExecContext(local, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// A statement is a prepared statement that is executed several times in one transaction.
type statement struct {
	prepared *sql.Stmt
	err      error
}

func prepare(conn *sql.Conn, query string) statement {
	prepared, err := conn.PrepareContext(local, query)
	return statement{prepared, err}
}

func (s statement) close() {
	if s.err == nil {
		_ = s.prepared.Close()
	}
}

// exec executes the statement and returns the number of rows that it has written.
func (s statement) exec(args ...any) (int64, error) {
	if s.err != nil {
		return 0, s.err
	}
	result, err := s.prepared.ExecContext(local, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// found executes the statement. If the answer has a row, found scans its columns into dest and
// returns true.
func (s statement) found(args []any, dest ...any) (bool, error) {
	if s.err != nil {
		return false, s.err
	}
	err := s.prepared.QueryRowContext(local, args...).Scan(dest...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}
