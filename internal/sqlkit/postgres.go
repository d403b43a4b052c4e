package sqlkit

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"strconv"
	"strings"
	"time"
)

// PostgresBegin begins each of our transactions on Postgres. Regardless of the default isolation
// level, each statement sees what others have committed before it.
const PostgresBegin = "BEGIN ISOLATION LEVEL READ COMMITTED"

//go:embed postgres_pinned.sql
var postgresPinned string

// PostgresPinned returns the statement that follows PostgresBegin, and its arguments. It pins all
// settings that could change a result if the role, the database, or another client of a pooler has
// set them. The transaction, each of its statements and each wait for a lock end with ctx.
// Transactions of the application do not use it, so nothing there may depend on it.
func PostgresPinned(ctx context.Context) (text string, args []any) {
	longest := LastResort
	if deadline, ok := ctx.Deadline(); ok {
		longest = max(10*time.Millisecond, min(time.Until(deadline), time.Hour))
	}
	ms := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	// These leave time for the error of a lock or a statement to reach the caller.
	return strings.TrimSpace(postgresPinned), []any{ms(longest * 9 / 10), ms(longest), ms(longest + time.Second)}
}

// QueryRowPinned executes a statement that returns one row, in a transaction with the settings of
// PostgresPinned, and scans its columns into dest. It takes four round trips; package pgxkit needs
// only one.
func QueryRowPinned(ctx context.Context, conn *sql.Conn, query string, args []any, dest ...any) error {
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	text, pins := PostgresPinned(ctx)
	if _, err = tx.ExecContext(ctx, text, pins...); err == nil {
		err = QueryRow(ctx, tx, query, args, dest...)
	}
	if err != nil {
		if undo := tx.Rollback(); !errors.Is(undo, sql.ErrTxDone) { // it may have ended with ctx
			err = errors.Join(err, undo)
		}
		return err
	}
	return tx.Commit()
}
