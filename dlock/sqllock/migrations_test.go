package sqllock_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// recorded checks the records of applied migrations. Migrate adopts a table without records, keeps
// the records of a newer version, and accepts objects that were created by hand.
func recorded(t *testing.T, s subject) {
	t.Helper()
	records := s.table + "_migrations"
	statements, err := s.open(t, sqllock.Options{}).Schema()
	if err != nil {
		t.Fatal(err)
	}
	s = s.migrated(t)
	store := s.open(t, sqllock.Options{})
	for what, statement := range map[string]string{"no table of versions": "DROP TABLE " + records,
		"no record": "DELETE FROM " + records} {
		s.exec(t, statement)
		if err := store.Verify(t.Context()); !errors.Is(err, sqllock.ErrSchema) ||
			!strings.Contains(err.Error(), "distributed_locks_migrations") {
			t.Errorf("%s: verify: %v: must name the table of versions", what, err)
		}
		if err := store.Migrate(t.Context()); err != nil {
			t.Errorf("%s: migrate: %v", what, err)
		}
		everything(t, store)
	}
	s.exec(t, "DROP TABLE "+s.table)
	s.exec(t, "DROP TABLE "+records)
	for _, statement := range statements {
		if strings.Contains(statement, "CREATE PROCEDURE") {
			continue // these objects still exist
		}
		s.exec(t, statement)
	}
	s.exec(t, "INSERT INTO "+records+" (version) VALUES (99)") // a newer version
	for what, call := range map[string]func(context.Context) error{"verify": store.Verify, "migrate": store.Migrate} {
		if err := call(t.Context()); err != nil {
			t.Errorf("applied by hand, and by a newer version: %s: %v", what, err)
		}
	}
	everything(t, store)
}

// Fails when Verify ignores the records, or treats a higher number as an error.
func TestWhatWasAppliedIsRecorded(t *testing.T) {
	t.Parallel()
	t.Run("Postgres", func(t *testing.T) {
		t.Parallel()
		recorded(t, postgres(t, "pgx"))
	})
	t.Run("MySQL", func(t *testing.T) {
		t.Parallel()
		recorded(t, mysqlOn(t, sqltest.SharedMariaDB(t), oneTrip))
	})
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		recorded(t, sqliteOn(sqlitePath(t)))
	})
}

// A user without the permission to create tables gets an error that says so and names the missing
// objects.
//
// Fails when the error does not match ErrSetup, so that hosts would treat it as an outage.
func TestMigrateWithoutTheRightToCreateTables(t *testing.T) {
	t.Parallel()
	refused := func(t *testing.T, s subject) {
		t.Helper()
		s = s.migrated(t).app(t)
		err := s.open(t, sqllock.Options{TableName: "another"}).Migrate(t.Context())
		if !errors.Is(err, sqllock.ErrSchema) || !strings.Contains(err.Error(), "privilege") ||
			!strings.Contains(err.Error(), "there is no table") || !strings.Contains(err.Error(), "another") {
			t.Errorf("%v: must name the table, and say that a privilege is missing", err)
		}
	}
	t.Run("Postgres", func(t *testing.T) {
		t.Parallel()
		refused(t, postgres(t, "pgx"))
	})
	t.Run("MySQL", func(t *testing.T) {
		t.Parallel()
		refused(t, mysqlOn(t, sqltest.SharedMariaDB(t), oneTrip))
	})
}
