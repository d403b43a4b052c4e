package sqlmigrate

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/pressly/goose/v3/database"

	"github.com/tickslot/tickslot/internal/sqlkit"
)

// store is goose's access to the version table. goose's own stores do not fit, because they accept
// only names that need no quotes. Their statements also have parameters, so drivers prepare them,
// and behind a pooler the next server connection may not know the prepared statement.
type store struct {
	Schema
	versions string
}

// Tablename implements database.Store.
func (s store) Tablename() string { return s.versions }

// TableExists makes goose leave the table to Up. Otherwise goose would try three times, at
// intervals of a second, to create what the user may not create.
func (s store) TableExists(context.Context, database.DBTxConn) (bool, error) { return true, nil }

// CreateVersionTable implements database.Store. It is not called, because of TableExists.
func (s store) CreateVersionTable(context.Context, database.DBTxConn) error {
	return database.ErrNotImplemented
}

// Insert records a migration. Another host may have recorded it in the meantime: see step.
func (s store) Insert(ctx context.Context, db database.DBTxConn, req database.InsertRequest) error {
	_, err := db.ExecContext(ctx, s.record(req.Version))
	return err
}

// Delete implements database.Store. Migrations are never reverted.
func (s store) Delete(context.Context, database.DBTxConn, int64) error {
	return database.ErrNotImplemented
}

// GetMigration implements database.Store. goose calls it only for Status and ApplyVersion.
func (s store) GetMigration(context.Context, database.DBTxConn, int64) (*database.GetMigrationResult, error) {
	return nil, database.ErrNotImplemented
}

// GetLatestVersion implements database.Store.
func (s store) GetLatestVersion(ctx context.Context, db database.DBTxConn) (latest int64, err error) {
	err = sqlkit.QueryRow(ctx, db, s.latestQuery(), nil, &latest)
	return latest, err
}

// ListMigrations implements database.Store. goose expects a version 0, which is not stored.
func (s store) ListMigrations(ctx context.Context, db database.DBTxConn) ([]*database.ListMigrationsResult, error) {
	var list []*database.ListMigrationsResult
	query := "SELECT version FROM " + s.versions + " ORDER BY version DESC"
	err := sqlkit.EachRow(ctx, db, query, nil, func(rows *sql.Rows) error {
		applied := &database.ListMigrationsResult{IsApplied: true}
		list = append(list, applied)
		return rows.Scan(&applied.Version)
	})
	return append(list, &database.ListMigrationsResult{IsApplied: true}), err
}

// isApplied reports whether a migration is recorded.
func (s store) isApplied(ctx context.Context, tx *sql.Tx, version int64) (bool, error) {
	var n int
	query := fmt.Sprintf("SELECT COUNT(*) FROM %s WHERE version = %d", s.versions, version)
	err := sqlkit.QueryRow(ctx, tx, query, nil, &n)
	return n > 0, err
}
