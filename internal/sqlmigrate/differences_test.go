package sqlmigrate_test

import (
	"context"
	"errors"
	"testing"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

// A table with uppercase column names is accepted, because SQLite ignores case.
//
// Fails when the columns are found but the columns of the primary key are not.
func TestColumnsInCapitalsOnSQLite(t *testing.T) {
	t.Parallel()
	db := onSQLite(t).open(t)
	schema := sqlmigrate.Schema{Dialect: sqlkit.SQLite, Schema: "main", Name: "things", Table: "things",
		Migrations: [][]string{{`CREATE TABLE IF NOT EXISTS "main"."things" (name TEXT NOT NULL, n INTEGER NOT NULL, ` +
			`PRIMARY KEY (name, n)) STRICT, WITHOUT ROWID`}}}
	_, err := db.ExecContext(t.Context(), `CREATE TABLE things (NAME TEXT NOT NULL, N INTEGER NOT NULL, `+
		`PRIMARY KEY (NAME, N)) STRICT, WITHOUT ROWID`)
	if err != nil {
		t.Fatal(err)
	}
	f := sqlkit.NewFile(db)
	tables := sqlmigrate.Tables{Schema: schema, Read: sqlmigrate.ReadFile(f), File: f, Wrong: errors.New("wrong"),
		Up:      func(ctx context.Context) error { return schema.UpFile(ctx, f) },
		Explain: func(err error) error { return err }}
	if err := tables.Migrate(t.Context()); err != nil {
		t.Error(err)
	}
}
