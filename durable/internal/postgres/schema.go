package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

// errSchema is matched by errors of Migrate and Verify when tables are missing, old, or different
// from those of Schema.
var errSchema = fmt.Errorf("%w: the schema is not right", dlock.ErrSetup)

// indexes are the names of the indexes, without TableName.
var indexes = []string{"schedules_plan", "runs_tick", "runs_waiting", "runs_key", "runs_queued", "runs_partition",
	"runs_running", "runs_ended", "runs_history", "runs_retried"}

// Schema implements store.Store.
func (s *Store) Schema() ([]string, error) { return s.schema.Statements(), nil }

// Migrate implements store.Store.
func (s *Store) Migrate(ctx context.Context) error {
	return s.withTables(func(t sqlmigrate.Tables) error { return t.Migrate(ctx) })
}

// Verify implements store.Store.
func (s *Store) Verify(ctx context.Context) error {
	return s.withTables(func(t sqlmigrate.Tables) error { return t.Verify(ctx) })
}

// withTables calls do with the tables that Migrate creates and Verify compares.
func (s *Store) withTables(do func(sqlmigrate.Tables) error) error {
	db := stdlib.OpenDBFromPool(s.pool)
	defer db.Close()
	return do(sqlmigrate.Tables{Schema: s.schema, Read: sqlmigrate.ReadDB(sqlkit.Postgres, db), Wrong: errSchema,
		Up: func(ctx context.Context) error { return s.schema.Up(ctx, db) }, Explain: sqlkit.Explain})
}
