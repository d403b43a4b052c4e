package pgxlock

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/dlock/nativelock"
)

// TryXactLock tries to take an advisory lock that lasts until the end of a transaction, and reports
// whether it did. It is nativelock.TryXactLock for pgx, and excludes its callers with the same
// name.
func TryXactLock(ctx context.Context, tx pgx.Tx, name string) (bool, error) {
	query, args, err := nativelock.XactLockQuery(name)
	if err != nil {
		return false, err
	}
	var taken bool
	// Not prepared: behind a PgBouncer the statement would stay with a server connection that the
	// next transaction does not get.
	mode := pgx.QueryExecModeExec
	if conn := tx.Conn(); conn != nil && conn.Config().DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol {
		mode = pgx.QueryExecModeSimpleProtocol
	}
	if err := tx.QueryRow(ctx, query, append([]any{mode}, args...)...).Scan(&taken); err != nil {
		return false, fmt.Errorf("pgxlock: %s: %w", name, err)
	}
	return taken, nil
}
