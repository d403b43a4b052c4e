package sqlkit_test

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "modernc.org/sqlite"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/pgxdurable"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/pgxoutbox"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// onPostgres returns all products and stores with tables on Postgres, keyed by one of their tables.
func onPostgres(t *testing.T, dsn string) map[string]tables {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close(); db.Close() })
	return map[string]tables{
		"distributed_locks":         sqllock.Postgres(db, sqllock.Options{}),
		"tickslot_registry":         sqlregistry.Postgres(db, sqlregistry.Options{}),
		"tickslot_durable_attempts": pgxdurable.New(pool, durable.Options{}),
		"tickslot_outbox_attempts":  pgxoutbox.New(pool, outbox.Options{}),
	}
}

// onSQLite returns all products and stores with tables on SQLite, keyed by one of their tables, in
// a newly opened file.
func onSQLite(t *testing.T, dsn string, connections int) map[string]tables {
	t.Helper()
	open := func() *sql.DB {
		db, err := sql.Open("sqlite", dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		db.SetMaxOpenConns(connections)
		return db
	}
	return map[string]tables{
		"distributed_locks":     sqllock.SQLite(open(), sqllock.Options{}),
		"tickslot_registry":     sqlregistry.SQLite(open(), sqlregistry.Options{}),
		"tickslot_durable_runs": durable.SQLite(open(), durable.Options{}),
		"tickslot_outbox":       outbox.SQLite(open(), outbox.Options{}),
	}
}

func migrated(t *testing.T, all map[string]tables) {
	t.Helper()
	for table, of := range all {
		if err := of.Migrate(t.Context()); err != nil {
			t.Fatalf("%s: %v", table, err)
		}
	}
}

// If a crash of the server emptied a table, leases would be granted again, or runs and messages
// would be lost. Verify detects such tables in each product.
//
// Fails when the catalog is not queried for that.
func TestTablesThatACrashWouldEmpty(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedPostgres(t)
	database := server.NewDatabase(t)
	all := onPostgres(t, server.DSN("", "", database))
	migrated(t, all)
	for table, of := range all {
		if out, err := server.Exec(database, "ALTER TABLE "+table+" SET UNLOGGED"); err != nil {
			t.Fatal(out, err)
		}
		if err := of.Verify(t.Context()); !errors.Is(err, driver.ErrSetup) || !strings.Contains(err.Error(), table) ||
			!strings.Contains(err.Error(), "unlogged") {
			t.Errorf("%s: Verify: %v: must say that the table is unlogged", table, err)
		}
		if out, err := server.Exec(database, "ALTER TABLE "+table+" SET LOGGED"); err != nil {
			t.Fatal(out, err)
		}
		if err := of.Verify(t.Context()); err != nil {
			t.Errorf("%s: Verify: %v", table, err)
		}
	}
}

// A file with two names has two write-ahead logs, whose users do not see each other's commits. An
// in-memory database is separate for each connection. A read-only file would be noticed only by the
// first write. Verify rejects all of them in each product.
//
// Fails when a product opens a file in a different way than the others.
func TestFilesThatCannotBeShared(t *testing.T) {
	t.Parallel()
	refused := func(t *testing.T, all map[string]tables, want string) {
		t.Helper()
		for table, of := range all {
			if err := of.Verify(t.Context()); !errors.Is(err, driver.ErrSetup) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: Verify: %v: must say %q", table, err, want)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "a.db")
	migrated(t, onSQLite(t, "file:"+path, 4))
	refused(t, onSQLite(t, "file:"+path+"?mode=ro", 4), "readonly")
	if err := os.Link(path, path+"2"); err != nil {
		t.Fatal(err)
	}
	refused(t, onSQLite(t, "file:"+path, 4), "hard links")
	if err := os.Remove(path + "2"); err != nil {
		t.Fatal(err)
	}
	for table, of := range onSQLite(t, "file:"+path, 4) {
		if err := of.Verify(t.Context()); err != nil {
			t.Errorf("%s: Verify: %v", table, err)
		}
	}
	refused(t, onSQLite(t, ":memory:", 4), "SetMaxOpenConns(1)")
	migrated(t, onSQLite(t, ":memory:", 1))
}

// A process whose file was replaced, for example by a backup, works on the new file. No other
// process sees the old one, so leases in it would exclude no other process, and its writes would be
// lost.
//
// Fails when a connection to the old file stays in use.
func TestFileThatWasReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.db")
	all := onSQLite(t, "file:"+path, 4)
	migrated(t, all)
	empty := path + ".new"
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path + "-wal", path + "-shm"} {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(empty, path); err != nil {
		t.Fatal(err)
	}
	for table, of := range all {
		err := of.Verify(t.Context())
		if !errors.Is(err, driver.ErrSetup) || !strings.Contains(err.Error(), "no table") {
			t.Errorf("%s: Verify: %v: must miss the tables in the new file", table, err)
		}
	}
	migrated(t, all)
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for table := range all {
		var n int
		if err := db.QueryRow("SELECT count(*) FROM " + table).Scan(&n); err != nil {
			t.Errorf("%s is not in the new file: %v", table, err)
		}
	}
}

// An engine without transactions cannot roll back half of a call. Verify detects it in each
// product.
//
// Fails when the catalog is not queried for that.
func TestTablesOfAnEngineWithoutTransactions(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedMariaDB(t)
	database := server.NewDatabase(t)
	db, err := sql.Open("mysql", server.DSN("", "", database))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	all := map[string]tables{
		"distributed_locks":     sqllock.MySQL(db, sqllock.Options{}),
		"tickslot_registry":     sqlregistry.MySQL(db, sqlregistry.Options{}),
		"tickslot_outbox_inbox": outbox.MySQL(db, outbox.Options{}),
	}
	migrated(t, all)
	for table, of := range all {
		if _, err := db.Exec("ALTER TABLE " + table + " ENGINE = Aria"); err != nil {
			t.Fatal(err)
		}
		if err := of.Verify(t.Context()); !errors.Is(err, driver.ErrSetup) || !strings.Contains(err.Error(), table) ||
			!strings.Contains(err.Error(), "InnoDB") {
			t.Errorf("%s: Verify: %v: must name the table and its engine", table, err)
		}
	}
}
