package sqllock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// strangeTables are table names that need quoting.
var strangeTables = []string{
	`locks of "the" shop`, "it's", "back`tick", "semi;colon", "SELECT", "schlüssel-世界", "a.b", "{table}", "%s", "[x]]",
	"-- x", "ünïcödé and upper CASE",
	// These are words that the statements themselves use.
	"wanted", "held", "done", "page", "idle", "kept", "clock", "n", "l", "head", "slot", "mine",
}

// manyMigrate makes ten hosts migrate at the same time, as in a new deployment, and another host
// after them.
//
// Fails when the statements are not under one lock: some hosts get an error that an object already
// exists.
func manyMigrate(t *testing.T, s subject) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	var all sync.WaitGroup
	for range 10 {
		store := s.open(t, sqllock.Options{})
		all.Go(func() {
			if err := store.Migrate(ctx); err != nil {
				t.Error(err)
			}
			if _, err := store.TryAcquire(ctx,
				driver.Request{Name: "a", Slots: 10, Token: "t", TTL: time.Minute}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := s.open(t, sqllock.Options{}).Migrate(t.Context()); err != nil {
		t.Error(err)
	}
}

// quotedTables creates a table for every strange name, side by side, and uses it.
//
// Fails when a statement does not quote the name.
func quotedTables(t *testing.T, s subject) {
	t.Helper()
	for i, name := range strangeTables {
		store := s.open(t, sqllock.Options{TableName: name})
		if err := store.Migrate(t.Context()); err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		if i < 3 {
			if err := store.Migrate(t.Context()); err != nil {
				t.Errorf("%q, again: %v", name, err)
			}
		}
		everything(t, store)
	}
}

// everything calls every method of a store that no other test uses, and checks the answers.
func everything(t testing.TB, store *sqllock.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	name := sqltest.Unique("everything")
	tick := &driver.Tick{At: time.Now().Add(-time.Second), Max: 1}
	g, err := store.TryAcquire(ctx, driver.Request{Name: name, Slots: 2, Token: "first", TTL: time.Minute, Tick: tick})
	if err != nil {
		t.Errorf("acquire: %v", err)
		return
	}
	if r, err := store.Extend(ctx, time.Minute, g); err != nil || r[0].Outcome != driver.GrantOK {
		t.Errorf("extend: %v, %v", r, err)
	}
	if held, err := store.List(ctx, name, 2); err != nil || len(held) != 1 {
		t.Errorf("list: %v, %v", held, err)
	}
	if p, err := store.Enumerate(ctx, "", driver.MaxPage); err != nil || len(p.Leases) == 0 {
		t.Errorf("enumerate: %v, %v", p, err)
	}
	if err := store.Update(ctx, name, driver.Update{Limit: &driver.LimitOverride{Cause: ann, Slots: 2}}); err != nil {
		t.Errorf("update: %v", err)
	}
	if o, err := store.Inspect(ctx, name); err != nil || o[0].Limit == nil || o[0].Limit.Cause != ann {
		t.Errorf("inspect: %+v, %v", o, err)
	}
	if err := store.Revoke(ctx, name, g.Slot, g.Fence, ann); err != nil {
		t.Errorf("revoke: %v", err)
	}
	if r, err := store.Release(ctx, g); err != nil || r[0].Outcome != driver.GrantOK {
		t.Errorf("release: %v, %v", r, err)
	}
	if err := store.Cleanup(ctx); err != nil {
		t.Errorf("cleanup: %v", err)
	}
	if _, err := store.Audit(ctx); err != nil {
		t.Errorf("audit: %v", err)
	}
}

// noTable expects every method to return an error that says to call Migrate and is not an outage.
func noTable(t *testing.T, s subject) {
	t.Helper()
	ctx := t.Context()
	store := s.open(t, sqllock.Options{TableName: "not_there"})
	g := driver.Grant{Name: "a", Slots: 1, Token: "t"}
	for what, call := range map[string]func() error{
		"acquire": func() error {
			_, err := store.TryAcquire(ctx, driver.Request{Name: "a", Slots: 1, Token: "t", TTL: time.Minute})
			return err
		},
		"extend":  func() error { _, err := store.Extend(ctx, time.Minute, g); return err },
		"release": func() error { _, err := store.Release(ctx, g); return err },
		"list":    func() error { _, err := store.List(ctx, "a", 1); return err },
		"cleanup": func() error { return store.Cleanup(ctx) },
		"update":  func() error { return store.Update(ctx, "a", driver.Update{}) },
		"inspect": func() error { _, err := store.Inspect(ctx, "a"); return err },
		"revoke":  func() error { return store.Revoke(ctx, "a", 0, 1, ann) },

		"enumerate": func() error { _, err := store.Enumerate(ctx, "", 10); return err },
	} {
		if err := call(); !errors.Is(err, driver.ErrSetup) || !strings.Contains(err.Error(), "call Migrate") {
			t.Errorf("%s: %v: must say that Migrate is to be called", what, err)
		}
	}
	if err := store.Verify(ctx); !errors.Is(err, sqllock.ErrSchema) || !strings.Contains(err.Error(), "not_there") {
		t.Errorf("verify: %v: must match ErrSchema and name the table", err)
	}
	warnings, err := store.Audit(ctx)
	if err != nil || !strings.Contains(strings.Join(warnings, "\n"), "not_there") {
		t.Errorf("audit: %v, %v: must warn that the table is missing", warnings, err)
	}
}

// wrongTable expects Verify and Migrate to reject a table with a wrong schema. They must name the
// fault and leave the table unchanged.
func wrongTable(t *testing.T, s subject, create string, wants ...string) {
	t.Helper()
	s.exec(t, create)
	store := s.open(t, sqllock.Options{TableName: "wrong"})
	for what, call := range map[string]func(context.Context) error{"verify": store.Verify, "migrate": store.Migrate} {
		err := call(t.Context())
		if !errors.Is(err, sqllock.ErrSchema) {
			t.Errorf("%s: %v: must match ErrSchema", what, err)
			continue
		}
		for _, want := range wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: missing %q in: %v", what, want, err)
			}
		}
	}
	s.exec(t, "DROP TABLE wrong")
}

// withoutColumn expects a table without the column to be found at startup. The error must name the
// column, and Migrate must leave the table unchanged.
func withoutColumn(t *testing.T, s subject, column string) {
	t.Helper()
	store := s.migrated(t).open(t, sqllock.Options{})
	s.exec(t, "ALTER TABLE "+s.table+" DROP COLUMN "+column)
	for what, call := range map[string]func(context.Context) error{"verify": store.Verify, "migrate": store.Migrate} {
		if err := call(t.Context()); !errors.Is(err, sqllock.ErrSchema) ||
			!strings.Contains(err.Error(), "has no column "+column) {
			t.Errorf("%s: %v: must name the column", what, err)
		}
	}
	if warnings, err := store.Audit(t.Context()); err != nil ||
		!strings.Contains(strings.Join(warnings, "\n"), "has no column "+column) {
		t.Errorf("audit: %q, %v: must name the column", warnings, err)
	}
}

// Fails when the column is not checked.
func TestMissingColumn(t *testing.T) {
	t.Parallel()
	for _, column := range []string{"succeeded_at", "renewed_at"} {
		t.Run("Postgres "+column, func(t *testing.T) {
			t.Parallel()
			withoutColumn(t, postgres(t, "pgx"), column)
		})
		t.Run("MySQL "+column, func(t *testing.T) {
			t.Parallel()
			withoutColumn(t, mysqlOn(t, sqltest.SharedMariaDB(t), oneTrip), column)
		})
		t.Run("SQLite "+column, func(t *testing.T) {
			t.Parallel()
			withoutColumn(t, sqliteOn(sqlitePath(t)), column)
		})
	}
}

func TestMigratePostgres(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"pgx", "database/sql", "PgBouncer"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			manyMigrate(t, postgres(t, way))
		})
	}
}

func TestTableNamesPostgres(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"pgx", "pipelines", "database/sql"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			if way != "pgx" {
				testkit.Long(t) // they send the same statements
			}
			quotedTables(t, postgres(t, way))
		})
	}
}

func TestBadSchemaPostgres(t *testing.T) {
	t.Parallel()
	s := postgres(t, "pgx")
	noTable(t, s)
	wrongTable(t, s, "CREATE TABLE wrong (resource_name text, slot bigint, lock_id uuid, fence bigint, acquired_at "+
		"timestamp, host_name text)",
		"column slot of \"public\".\"wrong\" is int8, and has to be int4", "lock_id of \"public\".\"wrong\" is uuid",
		"acquired_at of \"public\".\"wrong\" is timestamp,",
		"has no column expires_at", "primary key of \"public\".\"wrong\" is ()",
		"functions of this version are missing")
	wrongTable(t, s, "CREATE UNLOGGED TABLE wrong (resource_name text)", "unlogged")

	// This table lacks its functions, as an older version would leave it.
	s.migrated(t)
	old := s.open(t, sqllock.Options{})
	s.exec(t, "DROP FUNCTION "+old.FunctionName("acquire"))
	if err := old.Verify(t.Context()); !errors.Is(err, sqllock.ErrSchema) ||
		!strings.Contains(err.Error(), "functions") {
		t.Errorf("old schema: %v", err)
	}
	if _, err := old.TryAcquire(t.Context(), driver.Request{Name: "a", Token: "t", TTL: time.Minute}); !errors.Is(err,
		driver.ErrSetup) {
		t.Errorf("old schema: %v", err)
	}
	if err := old.Migrate(t.Context()); err != nil {
		t.Errorf("old schema: %v", err)
	}
	everything(t, old)
}

// The statements of Schema are complete when applied in order.
func TestSchemaIsWhatMigrateDoes(t *testing.T) {
	t.Parallel()
	s := postgres(t, "pgx")
	store := s.open(t, sqllock.Options{Schema: "locks"})
	statements, err := store.Schema()
	if err != nil {
		t.Fatal(err)
	}
	s.exec(t, "CREATE SCHEMA locks")
	for _, statement := range statements {
		s.exec(t, statement)
	}
	if err := store.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	everything(t, store)
	if out := s.exec(t, "SELECT count(*) FROM locks.distributed_locks"); strings.TrimSpace(out) == "0" {
		t.Error("the table in the schema was not used")
	}
}

// The role that docs/sql.md describes can call everything but Migrate and has no other privileges.
//
// Fails with one grant less.
func TestLeastPrivilegePostgres(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedPostgres(t)
	for _, way := range []string{"pgx", "database/sql"} {
		s := postgresOn(t, server, way).migrated(t)
		s.exec(t, "CREATE TABLE other (x int)")
		s = s.app(t)
		store := s.open(t, sqllock.Options{})
		if err := store.Migrate(t.Context()); err != nil {
			t.Errorf("migrate, when there is nothing to do: %v", err)
		}
		everything(t, store)
		if err := s.open(t, sqllock.Options{TableName: "another"}).Migrate(t.Context()); err == nil {
			t.Error("the role can create tables: the test shows nothing")
		}
		for _, forbidden := range []string{"SELECT * FROM other", "TRUNCATE distributed_locks",
			"DROP TABLE distributed_locks", "CREATE TABLE mine (x int)"} {
			if out, err := server.Exec(s.database, "SET ROLE app; "+forbidden); err == nil ||
				!strings.Contains(err.Error(), "permission denied") && !strings.Contains(err.Error(), "must be owner") {
				t.Errorf("%s: the role can: %s, %v", forbidden, out, err)
			}
		}
		oneRightLess(t, s)
	}
}
