// Package fences shows writes that are refused once their run has been replaced. Its tests stop a
// run for longer than its lease, let another host run the next tick, and wake the first run just
// before its write. docs/fences.md explains when this is needed.
//
//   - rows.go: rows of a database, with one statement or within a transaction.
//   - objects.go: an object store with conditional writes, such as S3.
//   - reports.go: the timer, with the policy that fences need.
package fences

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/tickslot/tickslot/dlock"
)

// ErrReplaced is returned if a write was refused because a later run has written.
var ErrReplaced = errors.New("a later run has written")

// Schema is the SQL of the tables, for SQLite and Postgres.
const Schema = `
CREATE TABLE report (day text PRIMARY KEY, total bigint NOT NULL, fence bigint NOT NULL);
CREATE TABLE ledger (id text PRIMARY KEY, fence bigint NOT NULL);
INSERT INTO ledger VALUES ('invoices', 0)`

// SaveTotal writes the total of a day unless a run with a higher fence has written it. The row
// stores the fence, and the statement compares it, so nothing can come between the two.
func SaveTotal(ctx context.Context, db *sql.DB, fence dlock.Fence, day string, total int64) error {
	return one(db.ExecContext(ctx, `
		INSERT INTO report (day, total, fence) VALUES ($1, $2, $3)
		ON CONFLICT (day) DO UPDATE SET total = excluded.total, fence = excluded.fence
		WHERE report.fence <= excluded.fence`, day, total, int64(fence)))
}

// InTransaction calls write in a transaction, and commits it unless a run with a higher fence has
// committed one for the same ledger. The update locks the ledger's row until the transaction ends,
// so two runs write one after the other. If the run with the lower fence comes second, it does not
// write.
func InTransaction(
	ctx context.Context, db *sql.DB, fence dlock.Fence, ledger string, write func(*sql.Tx) error,
) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after Commit
	err = one(tx.ExecContext(ctx, `UPDATE ledger SET fence = $1 WHERE id = $2 AND fence <= $3`,
		int64(fence), ledger, int64(fence)))
	if err == nil {
		err = write(tx)
	}
	if err != nil {
		return err
	}
	return tx.Commit()
}

// one returns ErrReplaced if a statement changed no row.
func one(result sql.Result, err error) error {
	if err != nil {
		return err
	}
	rows, err := result.RowsAffected()
	if err == nil && rows == 0 {
		return ErrReplaced
	}
	if err != nil {
		return fmt.Errorf("how many rows were written: %w", err)
	}
	return nil
}
