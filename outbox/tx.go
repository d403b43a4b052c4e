package outbox

import (
	"context"
	"database/sql"
	"errors"

	"github.com/tickslot/tickslot/outbox/internal/store"
)

var errNilSQLTx = errors.New("the transaction is a nil *sql.Tx")

// SQLTx wraps a transaction of database/sql for Append and Inbox.Once.
func SQLTx(tx *sql.Tx) Tx { return sqlTx{tx} }

type sqlTx struct{ tx *sql.Tx }

// QueryRow implements store.Tx.
func (s sqlTx) QueryRow(ctx context.Context, query string, args ...any) store.Row {
	if s.tx == nil {
		return failedRow{errNilSQLTx}
	}
	return s.tx.QueryRowContext(ctx, query, args...)
}

// Exec implements store.Tx.
func (s sqlTx) Exec(ctx context.Context, query string, args ...any) (rows int64, err error) {
	if s.tx == nil {
		return 0, errNilSQLTx
	}
	result, err := s.tx.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// A failedRow is the answer to a statement that was not executed.
type failedRow struct{ err error }

// Scan implements store.Row.
func (f failedRow) Scan(...any) error { return f.err }
