package sqlregistry_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/cluster/sqlregistry/pgxregistry"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// databases names one way to reach each database.
var databases = []string{"Postgres", "pgx", "MySQL", "SQLite"}

// batch returns a batch with rows of every sort.
func batch(host string) cluster.Batch {
	holder := dlock.Holder{Host: host, PID: 1, ID: "x"}
	return cluster.Batch{
		Host: &cluster.Heartbeat{Holder: holder, UpFor: time.Minute, TTL: time.Minute, Detail: []byte(`{}`)},
		Leases: []cluster.LeaseRecord{{Name: "l", Holder: holder, Fence: 1, Grant: "g", HeldFor: time.Minute,
			ExpiresIn: time.Minute}},
		Events: []cluster.Event{{ID: "e", Kind: cluster.EventAcquired, Name: "l", Holder: holder}},
		Runs:   []cluster.Run{{ID: "r", Timer: "t", Holder: holder, Outcome: "ok"}},
	}
}

// calls makes each call of a store once, Sweep last with something to delete, and returns the
// errors by the name of the call.
func calls(t testing.TB, s *sqlregistry.Store) map[string]error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	failed := map[string]error{}
	note := func(call string, err error) {
		if err != nil {
			failed[call] = err
		}
	}
	_, err := s.Write(ctx, batch("a"))
	note("Write", err)
	_, err = s.Read(ctx, cluster.Query{Events: 1, Runs: 1})
	note("Read", err)
	_, err = s.Runs(ctx, "t")
	note("Runs", err)
	_, err = s.Sweep(ctx, cluster.Retention{Hosts: -time.Hour, Leases: -time.Hour, Events: -time.Hour,
		Runs: -time.Hour}, 1)
	note("Sweep", err)
	return failed
}

// Without the table, or with a foreign table of that name, each call that needs what is missing
// fails immediately with an error that describes the repair. Migrate creates a missing table and
// leaves a foreign one unchanged.
//
// Fails when such an error counts as an outage, after which the call would be repeated forever.
func TestTableThatIsNotRight(t *testing.T) {
	t.Parallel()
	for _, way := range databases {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := ways[way](t)
			store := s.open(t)
			complain := func(when string, want int) {
				t.Helper()
				failed := calls(t, store)
				for call, err := range failed {
					if !errors.Is(err, dlock.ErrSetup) || !strings.Contains(err.Error(), "Migrate") {
						t.Errorf("%s: %s: %v: must match ErrSetup and name Migrate", when, call, err)
					}
				}
				if len(failed) != want {
					t.Errorf("%s: %d calls fail, want %d: %v", when, len(failed), want, failed)
				}
				if err := store.Verify(t.Context()); !errors.Is(err, sqlregistry.ErrSchema) {
					t.Errorf("%s: Verify: %v, want ErrSchema", when, err)
				}
			}
			complain("without a table", 4)
			if err := store.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			if failed := calls(t, store); len(failed) > 0 {
				t.Error(failed)
			}
			s.exec(t, "DELETE FROM tickslot_registry_migrations")
			complain("when a migration is not recorded", 0)
			if err := store.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.exec(t, "ALTER TABLE tickslot_registry RENAME COLUMN data TO datum")
			complain("with another column", 3) // Sweep does not need that column
			if err := store.Migrate(t.Context()); !errors.Is(err, sqlregistry.ErrSchema) ||
				!strings.Contains(err.Error(), "no column data") {
				t.Errorf("Migrate with another column: %v", err)
			}
			s.exec(t, "DROP TABLE tickslot_registry")
			complain("after the table was dropped", 4)
			if err := store.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			if failed := calls(t, store); len(failed) > 0 {
				t.Error(failed)
			}
		})
	}
}

// A table with additional columns from a newer version works.
func TestNewerTableIsUsed(t *testing.T) {
	t.Parallel()
	for _, way := range databases {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := ways[way](t)
			store := s.migrated(t)
			typ := map[string]string{"Postgres": "text", "pgx": "text", "MySQL": "TEXT", "SQLite": "TEXT"}[way]
			s.exec(t, "ALTER TABLE tickslot_registry ADD COLUMN later "+typ,
				"INSERT INTO tickslot_registry_migrations (version) VALUES (99)")
			if failed := calls(t, store); len(failed) > 0 {
				t.Error(failed)
			}
			if err := store.Migrate(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Any number of hosts may call Migrate at the same time.
func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	for _, way := range databases {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := ways[way](t)
			var all sync.WaitGroup
			for range 5 {
				store := s.open(t)
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					defer cancel()
					if err := store.Migrate(ctx); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
		})
	}
}

// The documented rights are sufficient. When one of them is missing, the error says so.
func TestRights(t *testing.T) {
	t.Parallel()
	for _, way := range databases[:2] {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := ways[way](t)
			s.migrated(t)
			heading, schema, user := "registry, Postgres", "public", "app"
			if way == "MySQL" {
				heading, schema, user = "registry, MySQL, MariaDB", s.database, "'app'@'%'"
			} else {
				s.exec(t, "REVOKE ALL ON SCHEMA public FROM PUBLIC")
			}
			grants, err := sqltest.Documented("../../docs/sql.md", heading, schema, user)
			if err != nil {
				t.Fatal(err)
			}
			s.exec(t, grants...)
			app := func() *sqlregistry.Store { return s.store(t, "", "app", sqlregistry.Options{}) }
			if err := app().Migrate(t.Context()); err != nil {
				t.Errorf("Migrate when everything is there: %v", err)
			}
			if failed := calls(t, app()); len(failed) > 0 {
				t.Errorf("with the documented rights: %v", failed)
			}
			for _, right := range sqltest.Rights(grants) {
				s.exec(t, right.Revoke)
				failed := calls(t, app())
				if err := app().Verify(t.Context()); err != nil {
					failed["Verify"] = err
				}
				if len(failed) == 0 {
					t.Errorf("without %s nothing fails", right)
				}
				if right.Name == "DELETE" && (len(failed) != 1 || failed["Sweep"] == nil) {
					t.Errorf("without %s: %v, want an error of Sweep only", right, failed)
				}
				for call, err := range failed {
					if !errors.Is(err, dlock.ErrSetup) || !strings.Contains(err.Error(), "privilege") &&
						!strings.Contains(err.Error(), "right") && !strings.Contains(err.Error(), "may not use") {
						t.Errorf("without %s: %s: %v: must match ErrSetup and say so", right, call, err)
					}
					if strings.Contains(err.Error(), servertest.Canary) {
						t.Errorf("without %s: the password is told: %v", right, err)
					}
				}
				s.exec(t, right.Grant)
			}
		})
	}
}

// Faults in the options and in server settings are reported before anything is written.
func TestOptionsAndSettingsThatCannotWork(t *testing.T) {
	t.Parallel()
	db := sqliteFile(t).db(t, "", "")
	for name, s := range map[string]*sqlregistry.Store{
		"no pool":         sqlregistry.Postgres(nil, sqlregistry.Options{}),
		"no pgx pool":     pgxregistry.New(nil, sqlregistry.Options{}),
		"a long name":     sqlregistry.Postgres(db, sqlregistry.Options{TableName: strings.Repeat("x", 51)}),
		"a placeholder":   sqlregistry.SQLite(db, sqlregistry.Options{TableName: "a{limit}"}),
		"NUL":             sqlregistry.Postgres(db, sqlregistry.Options{Schema: "a\x00"}),
		"a space":         sqlregistry.MySQL(db, sqlregistry.Options{TableName: "a "}),
		"four bytes":      sqlregistry.MySQL(db, sqlregistry.Options{TableName: "🦊"}),
		"a schema":        sqlregistry.SQLite(db, sqlregistry.Options{Schema: "a"}),
		"SQLite's own":    sqlregistry.SQLite(db, sqlregistry.Options{TableName: "SQLite_x"}),
		"an empty *Store": {},
		"nil":             nil,
	} {
		for call, err := range calls(t, s) {
			if !errors.Is(err, dlock.ErrSetup) {
				t.Errorf("%s: %s: %v, want ErrSetup", name, call, err)
			}
		}
		if s.Check() == nil || s.Verify(t.Context()) == nil || s.Migrate(t.Context()) == nil || s.String() == "" {
			t.Errorf("%s is not refused", name)
		}
	}
	server := quickMariaDB(t)
	refused := []subject{mysqlOn(t, server, oneTrip+"&autocommit=0"),
		mysqlOn(t, server, oneTrip+"&sql_mode=%27SIMULTANEOUS_ASSIGNMENT%27")}
	latin := postgresOn(t, quickPostgres(t), "")
	latin.database = latin.server.NewDatabase(t, "ENCODING 'LATIN1' TEMPLATE template0")
	for i, want := range []string{"autocommit", "SIMULTANEOUS_ASSIGNMENT"} {
		if err := refused[i].open(t).Migrate(t.Context()); !errors.Is(err, sqlregistry.ErrSchema) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	dsn := latin.server.DSN("", "", latin.database)
	s := sqlregistry.Postgres(opened(t, "pgx", dsn), sqlregistry.Options{})
	if err := s.Migrate(t.Context()); !errors.Is(err, sqlregistry.ErrSchema) || !strings.Contains(err.Error(), "UTF8") {
		t.Errorf("a database in LATIN1: %v", err)
	}
}
