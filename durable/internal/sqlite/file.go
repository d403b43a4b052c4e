package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/tickslot/tickslot/internal/sqlkit"
)

// file executes transactions on a SQLite database. It never returns a connection to the pool within
// one.
type file struct {
	db *sql.DB

	// turn is held by the one call of this process that writes. The others queue here instead of
	// trying again and again: SQLite admits one writer at a time, in no order.
	turn chan none
}

// local is the context of all statements. Only locks take long in SQLite, and those are waited for
// in Go, so no statement needs to be interrupted.
var local = context.Background()

// none is the answer of a call that has none.
type none = struct{}

// read calls do in a transaction that sees one state of the database.
func read[A any](ctx context.Context, f *file, do func(*sql.Conn) (A, error)) (A, error) {
	return transaction(ctx, f, "BEGIN", do)
}

// write calls do in a transaction that has the write lock from its begin.
func write[A any](ctx context.Context, f *file, do func(*sql.Conn) (A, error)) (answer A, _ error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, sqlkit.LastResort)
		defer cancel()
	}
	select {
	case f.turn <- none{}:
	case <-ctx.Done():
		return answer, fmt.Errorf("another call of this process has the database: %w", ctx.Err())
	}
	// If the disk hangs, the call returns with its context, and the next one has its turn: it finds
	// the file locked.
	defer func() { <-f.turn }()
	return transaction(ctx, f, "BEGIN IMMEDIATE", do)
}

// transaction calls do in a transaction, which is rolled back if do fails, or ctx has ended. It
// calls do again while it fails because of a lock.
func transaction[A any](ctx context.Context, f *file, begin string, do func(*sql.Conn) (A, error)) (A, error) {
	return inTime(ctx, func(ctx context.Context) (answer A, err error) {
		err = sqlkit.Patiently(ctx, func() error {
			return sqlkit.WithoutBusyTimeout(ctx, f.db, func(conn *sql.Conn) error {
				return sqlkit.InTransaction(ctx, conn, begin, func() (err error) {
					answer, err = do(conn)
					return err
				})
			})
		})
		return answer, err
	})
}

// inTime makes a call that returns when ctx ends, even if the disk hangs, and says what to do about
// its error. What it calls may go on then, so it shares no variable with its caller.
func inTime[A any](ctx context.Context, call func(context.Context) (A, error)) (answer A, err error) {
	if err = ctx.Err(); err == nil {
		answer, err = sqlkit.InTime(ctx, call)
	}
	if err != nil {
		return *new(A), err
	}
	return answer, nil
}

// rows executes a statement, and returns the rows of its answer. dest returns where to put the
// columns of one.
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

// found executes a statement that returns one row or none.
func found(conn *sql.Conn, query string, args []any, dest ...any) (bool, error) {
	err := sqlkit.QueryRow(local, conn, query, args, dest...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// exec executes a statement, and returns how many rows it has written.
func exec(conn *sql.Conn, query string, args ...any) (int64, error) {
	result, err := conn.ExecContext(local, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// A statement is executed several times in one transaction.
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

// exec executes it, and returns how many rows it has written.
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

// found executes it, and puts the columns of the row of its answer into dest, if there is one.
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
