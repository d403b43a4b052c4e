package durable

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/durable/internal/store"
)

// PgxTx wraps a transaction of pgx for Trigger. The statements of Trigger are not prepared, so each
// call is one round trip.
func PgxTx(tx pgx.Tx) Tx { return pgxTx{tx} }

type pgxTx struct{ tx pgx.Tx }

// QueryRow implements store.Tx.
func (t pgxTx) QueryRow(ctx context.Context, query string, args ...any) store.Row {
	if t.tx == nil {
		return failedRow{errors.New("the transaction is a nil pgx.Tx")}
	}
	// Behind a PgBouncer a prepared statement would stay with a server connection that the next
	// transaction does not get.
	mode := pgx.QueryExecModeExec
	if conn := t.tx.Conn(); conn != nil && conn.Config().DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol {
		mode = pgx.QueryExecModeSimpleProtocol
	}
	return t.tx.QueryRow(ctx, query, append([]any{mode}, args...)...)
}

// SQLTx wraps a transaction of database/sql for Trigger.
func SQLTx(tx *sql.Tx) Tx { return sqlTx{tx} }

type sqlTx struct{ tx *sql.Tx }

// QueryRow implements store.Tx.
func (t sqlTx) QueryRow(ctx context.Context, query string, args ...any) store.Row {
	if t.tx == nil {
		return failedRow{errors.New("the transaction is a nil *sql.Tx")}
	}
	return t.tx.QueryRowContext(ctx, query, args...)
}

// A failedRow is the answer to a statement that was not executed.
type failedRow struct{ err error }

// Scan implements store.Row.
func (r failedRow) Scan(...any) error { return r.err }
