package pgxlock_test

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/dlock/sqllock/pgxlock"
)

// One host at a time closes the books. The others find the lock taken and skip the work.
func ExampleTryXactLock() {
	closeBooks := func(ctx context.Context, pool *pgxpool.Pool) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			mine, err := pgxlock.TryXactLock(ctx, tx, "close-books")
			if err != nil || !mine {
				return err
			}
			_, err = tx.Exec(ctx, "UPDATE books SET closed = true WHERE year < 2026")
			return err
		})
	}
	_ = closeBooks
}
