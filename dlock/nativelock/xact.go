package nativelock

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"

	"github.com/tickslot/tickslot/dlock/driver"
)

// TryXactLock tries to take an advisory lock of Postgres that lasts until the end of a transaction.
// It reports whether it took the lock, and does not wait. Use it for a short section within one
// transaction. There is no lease, no heartbeat and no release. The transaction's writes happen
// under the lock or not at all. It works through a PgBouncer in every mode that supports
// transactions.
//
//	tx, err := db.BeginTx(ctx, nil)
//	defer tx.Rollback()
//	switch mine, err := nativelock.TryXactLock(ctx, tx, "close-books"); {
//	case err != nil:
//		return err
//	case !mine:
//		return nil // another host has the lock
//	}
//
// The lock is 64 bits of a SHA-256 over the name. It is independent of locks with the same name in
// PostgresAdvisory and sqllock. A transaction may take the same lock again. With pgx itself, use
// package pgxlock.
func TryXactLock(ctx context.Context, tx *sql.Tx, name string) (bool, error) {
	query, args, err := XactLockQuery(name)
	if err != nil {
		return false, err
	}
	var taken bool
	if err := tx.QueryRowContext(ctx, query, args...).Scan(&taken); err != nil {
		return false, fmt.Errorf("nativelock: %s: %w", name, err)
	}
	return taken, nil
}

// XactLockQuery returns the statement of TryXactLock for use with other libraries. The statement
// returns one boolean.
func XactLockQuery(name string) (query string, args []any, err error) {
	if err := driver.CheckName(name); err != nil {
		return "", nil, fmt.Errorf("nativelock: %w", err)
	}
	return "SELECT pg_try_advisory_xact_lock($1::bigint)",
		[]any{advisoryKey(sha256.Sum256([]byte("tickslot transaction 1\x00" + name)))}, nil
}
