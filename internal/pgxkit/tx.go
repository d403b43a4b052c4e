package pgxkit

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

var errNilTx = errors.New("the transaction is a nil pgx.Tx")

// QueryRow executes a statement in a transaction of the application. The statement is not prepared,
// so it takes one round trip.
func QueryRow(ctx context.Context, tx pgx.Tx, query string, args ...any) pgx.Row {
	if tx == nil {
		return failedRow{errNilTx}
	}
	return tx.QueryRow(ctx, query, unprepared(tx, args)...)
}

// Exec is like QueryRow, for a statement that returns no row. It returns the number of changed
// rows.
func Exec(ctx context.Context, tx pgx.Tx, query string, args ...any) (rows int64, err error) {
	if tx == nil {
		return 0, errNilTx
	}
	tag, err := tx.Exec(ctx, query, unprepared(tx, args)...)
	return tag.RowsAffected(), err
}

// unprepared makes pgx send a statement without preparing it. Behind a PgBouncer, a prepared
// statement would stay with a server connection that the next transaction may not get.
func unprepared(tx pgx.Tx, args []any) []any {
	mode := pgx.QueryExecModeExec
	if conn := tx.Conn(); conn != nil && conn.Config().DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol {
		mode = pgx.QueryExecModeSimpleProtocol
	}
	return append([]any{mode}, args...)
}

// A failedRow is the result of a statement that was not executed.
type failedRow struct{ err error }

// Scan implements pgx.Row.
func (f failedRow) Scan(...any) error { return f.err }
