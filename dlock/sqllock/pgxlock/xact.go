package pgxlock

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/dlock/nativelock"
	"github.com/tickslot/tickslot/internal/pgxkit"
)

// TryXactLock tries to take an advisory lock that lasts until the end of a transaction, and reports
// whether it took the lock. It is nativelock.TryXactLock for pgx. The two functions exclude each
// other for the same name.
func TryXactLock(ctx context.Context, tx pgx.Tx, name string) (bool, error) {
	query, args, err := nativelock.XactLockQuery(name)
	if err != nil {
		return false, err
	}
	var taken bool
	if err := pgxkit.QueryRow(ctx, tx, query, args...).Scan(&taken); err != nil {
		return false, fmt.Errorf("pgxlock: %s: %w", name, err)
	}
	return taken, nil
}
