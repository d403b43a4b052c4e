package durable

import (
	"context"
	"database/sql"
	"errors"

	"github.com/tickslot/tickslot/durable/internal/store"
)

// SQLTx wraps a transaction of database/sql for Trigger.
func SQLTx(tx *sql.Tx) Tx { return sqlTx{tx} }

type sqlTx struct{ tx *sql.Tx }

// QueryRow implements store.Tx.
func (s sqlTx) QueryRow(ctx context.Context, query string, args ...any) store.Row {
	if s.tx == nil {
		return failedRow{errors.New("the transaction is a nil *sql.Tx")}
	}
	return s.tx.QueryRowContext(ctx, query, args...)
}

// A failedRow is the answer to a statement that was not executed.
type failedRow struct{ err error }

// Scan implements store.Row.
func (f failedRow) Scan(...any) error { return f.err }
