package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
)

func TestMigrateSQLite(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"file", "memory"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := sqliteWays[way](t)
			manyMigrate(t, s)
			want := map[string]string{"file": "wal", "memory": "memory"}[way]
			if mode := strings.TrimSpace(s.exec(t, "PRAGMA journal_mode")); mode != want {
				t.Errorf("journal_mode %s, want %s", mode, want)
			}
		})
	}
}

func TestTableNamesSQLite(t *testing.T) {
	brisk(t)
	t.Parallel()
	s := sqliteOn(sqlitePath(t))
	quotedTables(t, s)
	if tables := s.exec(t, "SELECT count(*) FROM sqlite_schema WHERE type = 'table'"); strings.TrimSpace(
		tables) != fmt.Sprint(2*len(strangeTables)) {
		t.Errorf("%s tables for %d stores, each with one of versions", tables, len(strangeTables))
	}
}

func TestBadOptionsSQLite(t *testing.T) {
	t.Parallel()
	db := openSQLite(t, ":memory:")
	for want, store := range map[string]*sqllock.Store{
		"pass one":         sqllock.SQLite(nil, sqllock.Options{}),
		"SQLite has none":  sqllock.SQLite(db, sqllock.Options{Schema: "main"}),
		"begin with sqlit": sqllock.SQLite(db, sqllock.Options{TableName: "SQLite_locks"}),
		"at most 44":       sqllock.SQLite(db, sqllock.Options{TableName: strings.Repeat("t", 45)}),
	} {
		for what, err := range map[string]error{"check": store.Check(), "migrate": store.Migrate(t.Context())} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", what, err, want)
			}
		}
		if _, err := store.TryAcquire(t.Context(), driver.Request{Name: "a", Token: "t",
			TTL: time.Minute}); err == nil {
			t.Errorf("granted in spite of %q", want)
		}
	}
}

func TestBadSchemaSQLite(t *testing.T) {
	t.Parallel()
	s := sqliteOn(sqlitePath(t))
	noTable(t, s)
	wrongTable(t, s, "CREATE TABLE wrong (resource_name TEXT COLLATE NOCASE, slot TEXT, lock_id BLOB, fence REAL, "+
		"host_name TEXT, revoked BLOB, slot_limit REAL, PRIMARY KEY (resource_name, slot))",
		`column slot of "main"."wrong" is TEXT, and has to be INTEGER`, "lock_id of \"main\".\"wrong\" is BLOB",
		"fence of \"main\".\"wrong\" is REAL",
		"revoked of \"main\".\"wrong\" is BLOB", "slot_limit of \"main\".\"wrong\" is REAL",
		"has no column expires_at", "is (resource_name COLLATE NOCASE, slot), and has to be (resource_name, slot)",
		"the index wrong_ends of", "the index wrong_holders of")
	wrongTable(t, s, "CREATE TABLE wrong (resource_name TEXT, slot INTEGER)", `primary key of "main"."wrong" is ()`)
	s.exec(t, "CREATE TABLE t (x INTEGER)")
	s.exec(t, "CREATE VIEW views AS SELECT * FROM t")
	if err := s.open(t, sqllock.Options{TableName: "views"}).Migrate(t.Context()); !errors.Is(err, sqllock.ErrSchema) {
		t.Errorf("a view: %v", err)
	}

	// Migrate creates a missing index. A temporary table of the same name is ignored.
	s.migrated(t)
	s.exec(t, "DROP INDEX distributed_locks_holders")
	store := s.open(t, sqllock.Options{})
	if err := store.Verify(t.Context()); !errors.Is(err, sqllock.ErrSchema) || !strings.Contains(err.Error(), "index") {
		t.Errorf("without an index: %v", err)
	}
	if err := store.Migrate(t.Context()); err != nil {
		t.Errorf("without an index: %v", err)
	}
	one := sqliteShared(openSQLite(t, ":memory:"))
	one.exec(t, "CREATE TEMP TABLE distributed_locks (x INTEGER)")
	everything(t, one.migrated(t).open(t, sqllock.Options{}))
}

// The statements of Schema are complete when applied in order, in one transaction.
func TestSchemaIsWhatMigrateDoesSQLite(t *testing.T) {
	t.Parallel()
	s := sqliteOn(sqlitePath(t))
	store := s.open(t, sqllock.Options{})
	list, err := store.Schema()
	if err != nil {
		t.Fatal(err)
	}
	s.exec(t, "BEGIN; "+strings.Join(list, ";\n")+"; COMMIT")
	if err := store.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	everything(t, store)
	warnings, err := store.Audit(t.Context())
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "journal_mode is delete") {
		t.Errorf("audit: %q, %v: must warn of the journal mode", warnings, err)
	}
	s.exec(t, "PRAGMA journal_mode = wal")
	if warnings, err := store.Audit(t.Context()); err != nil || len(warnings) > 0 {
		t.Errorf("audit: %q, %v", warnings, err)
	}
	careless := sqllock.SQLite(openSQLite(t, "file:"+filepath.Join(t.TempDir(),
		"locks.db")+"?_pragma=synchronous(off)"), sqllock.Options{})
	if err := careless.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if warnings, err := careless.Audit(t.Context()); err != nil || len(warnings) != 1 ||
		!strings.Contains(warnings[0], "synchronous") {
		t.Errorf("audit: %q, %v: must warn of synchronous", warnings, err)
	}
}

// Fails when Cleanup deletes rows in use or rows below a slot in use, and when it handles only one
// batch.
func TestCleanupSQLite(t *testing.T) {
	brisk(t)
	t.Parallel()
	cleans(t, sqliteOn(sqlitePath(t)).migrated(t), func(days int) string {
		return fmt.Sprintf("(CAST(strftime('%%s', 'now') AS INTEGER) - %d * 86400) * 1000000", days)
	})
}

// Each connection to an in-memory database has its own database. Verify reports this before two
// hosts can hold one slot.
//
// Fails when shared does not compare two connections.
func TestPrivateMemorySQLite(t *testing.T) {
	t.Parallel()
	db := openSQLite(t, ":memory:")
	db.SetMaxOpenConns(2)
	db.SetMaxIdleConns(2)
	store := sqllock.SQLite(db, sqllock.Options{})
	for range 2 {
		if err := store.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "SetMaxOpenConns(1)") {
			t.Errorf("migrate: %v", err)
		}
	}
	if _, err := store.Audit(t.Context()); err == nil || !strings.Contains(err.Error(), "SetMaxOpenConns(1)") {
		t.Errorf("audit: %v", err)
	}
	// The temporary table ended with its connection, so the table is missing.
	db = openSQLite(t, ":memory:")
	store = sqllock.SQLite(db, sqllock.Options{})
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	db.SetMaxIdleConns(-1)
	db.SetMaxIdleConns(1)
	_, err := store.TryAcquire(t.Context(), driver.Request{Name: "a", Token: "t", TTL: time.Minute})
	if !errors.Is(err, driver.ErrSetup) || !strings.Contains(err.Error(), "SetMaxOpenConns(1)") {
		t.Errorf("acquire: %v", err)
	}
}

// A file that cannot be used as a database causes an error that says why, even at startup.
//
// Fails when Verify does not try to write (a read-only file passes).
func TestUnfitFilesSQLite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good := filepath.Join(dir, "good.db")
	sqliteOn(good).migrated(t)
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("this is no database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for dsn, want := range map[string]string{
		"file:" + good + "?mode=ro":                    "has to be able to write",
		"file:" + filepath.Join(dir, "no", "where.db"): "has to be able to write",
		"file:" + dir: "has to be able to write",
		"file:" + filepath.Join(dir, "none") + "?mode=rw": "has to be able to write",
		"file:" + text: "no SQLite database",
	} {
		store := sqllock.SQLite(openSQLite(t, dsn), sqllock.Options{})
		_, err := store.TryAcquire(t.Context(), driver.Request{Name: "a", Token: "t", TTL: time.Minute})
		if err == nil || errors.Is(err, driver.ErrNotAcquired) || errors.Is(err, driver.ErrFault) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: acquire: %v, want %q", dsn, err, want)
		}
		if err := store.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: migrate: %v, want %q", dsn, err, want)
		}
	}
}

// If Cleanup ends in the middle of a name with many slots, it leaves no gap below the remaining
// slots, because a gap hides slots for a while.
//
// Fails when the slots of a name are deleted page by page.
func TestCleanupLeavesNoGapSQLite(t *testing.T) {
	t.Parallel()
	path := sqlitePath(t)
	s := sqliteOn(path).migrated(t)
	s.exec(t, `WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 1999)
		INSERT INTO distributed_locks (resource_name, slot, fence, acquired_at, expires_at, released_at)
		SELECT 'wide:slot:', i, 1, 1, 0, 1 FROM n`)
	h := &hook{}
	store := sqllock.SQLite(h.open(t, sqliteDSN(path)), sqllock.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h.set(nil, func(statement string) {
		if statement == "COMMIT" {
			cancel()
		}
	})
	err := store.Cleanup(ctx)
	h.set(nil, nil)
	lowest := s.exec(t, "SELECT count(*), coalesce(min(slot), 0) FROM distributed_locks WHERE slot >= 0")
	if strings.Fields(lowest)[1] != "0" {
		t.Errorf("left are %s rows from slot %s on (%v): those below are a gap", strings.Fields(lowest)[0],
			strings.Fields(lowest)[1], err)
	}
}

// If the table's name is also the name of another table's index, Migrate returns an error.
// Otherwise only a slow query would show the fault later.
//
// Fails when a missing index is not reported.
func TestNamesOfIndexesThatAreTakenSQLite(t *testing.T) {
	t.Parallel()
	s := sqliteOn(sqlitePath(t))
	if err := s.open(t, sqllock.Options{TableName: "a_ends"}).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.open(t, sqllock.Options{TableName: "a"}).Migrate(t.Context()); !errors.Is(err, sqllock.ErrSchema) {
		t.Errorf("%v: must say that the schema is not right", err)
	}
}
