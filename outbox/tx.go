package outbox

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/outbox/internal/store"
)

var (
	errNilPgxTx = errors.New("the transaction is a nil pgx.Tx")
	errNilSQLTx = errors.New("the transaction is a nil *sql.Tx")
)

// PgxTx is a transaction of pgx, for Append and Inbox.Once. What they execute in it is not
// prepared, so each statement is one round trip.
func PgxTx(tx pgx.Tx) Tx { return pgxTx{tx} }

type pgxTx struct{ tx pgx.Tx }

// QueryRow implements store.Tx.
func (t pgxTx) QueryRow(ctx context.Context, query string, args ...any) store.Row {
	if t.tx == nil {
		return failedRow{errNilPgxTx}
	}
	return t.tx.QueryRow(ctx, query, t.unprepared(args)...)
}

// Exec implements store.Tx.
func (t pgxTx) Exec(ctx context.Context, query string, args ...any) (rows int64, err error) {
	if t.tx == nil {
		return 0, errNilPgxTx
	}
	tag, err := t.tx.Exec(ctx, query, t.unprepared(args)...)
	return tag.RowsAffected(), err
}

// unprepared says that a statement is not to be prepared: behind a PgBouncer it would stay with a
// server connection that the next transaction does not get.
func (t pgxTx) unprepared(args []any) []any {
	mode := pgx.QueryExecModeExec
	if conn := t.tx.Conn(); conn != nil && conn.Config().DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol {
		mode = pgx.QueryExecModeSimpleProtocol
	}
	return append([]any{mode}, args...)
}

// SQLTx is a transaction of database/sql, for Append and Inbox.Once.
func SQLTx(tx *sql.Tx) Tx { return sqlTx{tx} }

type sqlTx struct{ tx *sql.Tx }

// QueryRow implements store.Tx.
func (t sqlTx) QueryRow(ctx context.Context, query string, args ...any) store.Row {
	if t.tx == nil {
		return failedRow{errNilSQLTx}
	}
	return t.tx.QueryRowContext(ctx, query, args...)
}

// Exec implements store.Tx.
func (t sqlTx) Exec(ctx context.Context, query string, args ...any) (rows int64, err error) {
	if t.tx == nil {
		return 0, errNilSQLTx
	}
	result, err := t.tx.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// A failedRow is the answer to a statement that was not executed.
type failedRow struct{ err error }

// Scan implements store.Row.
func (r failedRow) Scan(...any) error { return r.err }
