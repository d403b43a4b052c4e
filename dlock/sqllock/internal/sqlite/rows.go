package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/tickslot/tickslot/internal/sqlkit"
)

// local is the context of all statements. In SQLite, only waiting for locks takes long, and Go code
// does this waiting. So no statement needs to be interrupted.
var local = context.Background()

// read executes a query and returns its only row.
func read[R any](ctx context.Context, f *sqlkit.File, query string, args []any, dest func(*R) []any) (
	row R, err error) {
	err = f.With(ctx, func(conn *sql.Conn) error {
		row, err = one(scan(dest)(conn.QueryContext(local, query, args...)))
		return err
	})
	return row, err
}

// scan returns a function that scans the result of a query into rows.
func scan[R any](dest func(*R) []any) func(*sql.Rows, error) ([]R, error) {
	return func(rows *sql.Rows, err error) (all []R, _ error) {
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		for rows.Next() {
			var r R
			if err := rows.Scan(dest(&r)...); err != nil {
				return nil, err
			}
			all = append(all, r)
		}
		return all, rows.Err()
	}
}

func one[R any](rows []R, err error) (row R, _ error) {
	if err != nil {
		return row, err
	}
	if len(rows) != 1 {
		return row, fmt.Errorf("an answer of %d rows, and not one", len(rows))
	}
	return rows[0], nil
}

// write calls do in a transaction that has the write lock. If do fails or ctx has ended, write
// rolls back. It prepares query before the transaction begins, because preparing takes longer than
// executing and would keep all other writers waiting.
func (d *DB) write(ctx context.Context, query string, do func(*sql.Conn, *sql.Stmt) error) error {
	defer d.file.Turn(ctx)()
	return d.file.With(ctx, func(conn *sql.Conn) error {
		restore, err := sqlkit.TurnOffBusyTimeout(conn)
		if err != nil {
			return err
		}
		defer restore()
		prepared, err := conn.PrepareContext(local, query)
		if err != nil {
			return err
		}
		defer prepared.Close()
		return sqlkit.InTransaction(ctx, conn, "BEGIN IMMEDIATE", func() error { return do(conn, prepared) })
	})
}
