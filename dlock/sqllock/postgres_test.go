package sqllock_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/dlock/sqllock/pgxlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/sqltest"
	"github.com/tickslot/tickslot/proof/torture/crowd"
)

// postgresWays are the ways to connect to Postgres. Each returns a subject on a database of the
// server.
var postgresWays = []struct {
	name string
	open func(t testing.TB, server *sqltest.Server, database, user string) func(testing.TB,
		sqllock.Options) *sqllock.Store
}{
	{"pgx", func(t testing.TB, server *sqltest.Server, database, user string) func(testing.TB,
		sqllock.Options) *sqllock.Store {
		return viaPgx(t, server.DSN(user, "", database))
	}},
	{"pipelines", func(t testing.TB, server *sqltest.Server, database, user string) func(testing.TB,
		sqllock.Options) *sqllock.Store {
		return viaPgx(t, server.DSN(user, "", database), func(c *pgxpool.Config) {
			c.ConnConfig.RuntimeParams["standard_conforming_strings"] = "off" // pgx then cannot quote
		})
	}},
	{"PgBouncer", func(t testing.TB, server *sqltest.Server, database, user string) func(testing.TB,
		sqllock.Options) *sqllock.Store {
		bouncer := sqltest.PgBouncer(t, server, "transaction",
			sqltest.Options{Settings: []string{"default_pool_size=16"}})
		return viaPgx(t, bouncer.DSN(user, "", database))
	}},
	{"database/sql", func(t testing.TB, server *sqltest.Server, database, user string) func(testing.TB,
		sqllock.Options) *sqllock.Store {
		return viaSQL(t, server.DSN(user, "", database))
	}},
}

// postgres returns a subject on a new database of the shared server.
func postgres(t testing.TB, way string) subject {
	t.Helper()
	return postgresOn(t, sqltest.SharedPostgres(t), way)
}

func postgresOn(t testing.TB, server *sqltest.Server, way string) subject {
	t.Helper()
	database := server.NewDatabase(t)
	for _, w := range postgresWays {
		if w.name == way {
			as := func(t testing.TB, user string) func(testing.TB, sqllock.Options) *sqllock.Store {
				return w.open(t, server, database, user)
			}
			return subject{
				open: as(t, ""), exec: execOn(server, database), table: "distributed_locks",
				span: "%d * interval '1 microsecond'", database: database, as: as,
				grants: append([]string{"REVOKE ALL ON SCHEMA public FROM PUBLIC;"},
					documented(t, "Postgres", "public")...),
			}
		}
	}
	t.Fatalf("there is no way %q", way)
	return subject{}
}

func execOn(server *sqltest.Server, database string) func(testing.TB, string) string {
	return func(t testing.TB, statements string) string {
		t.Helper()
		out, err := server.Exec(database, statements)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
}

func viaPgx(t testing.TB, dsn string, settings ...func(*pgxpool.Config)) func(testing.TB,
	sqllock.Options) *sqllock.Store {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(dsn, "connect_timeout=") {
		config.ConnConfig.ConnectTimeout = 10 * time.Second // these tests together keep a machine busy
	}
	for _, set := range settings {
		set(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return func(t testing.TB, opts sqllock.Options) *sqllock.Store {
		s := pgxlock.New(pool, opts)
		t.Cleanup(func() { s.Close() })
		return s
	}
}

// viaSQL gives each host its own *sql.DB, as the package comment advises.
func viaSQL(t testing.TB, dsn string) func(testing.TB, sqllock.Options) *sqllock.Store {
	t.Helper()
	return func(t testing.TB, opts sqllock.Options) *sqllock.Store {
		db, err := sql.Open("pgx", dsn)
		if err != nil {
			t.Fatal(err)
		}
		db.SetMaxOpenConns(4)
		db.SetMaxIdleConns(4)
		t.Cleanup(func() { db.Close() })
		return sqllock.Postgres(db, opts)
	}
}

// features are the features of the stores on tables. TestRoundTripsPostgres counts the round trips.
var features = dlocktest.Features{Fence: true, AtomicTick: true, Holders: true, Info: true, LastSuccess: true,
	PreviousExpired: true, Control: true, Shared: true, Rate: true, Delay: true, Listing: true, Enumeration: true}

// conform runs the conformance suite. Each of its tests has a separate namespace on one table.
func conform(t *testing.T, s subject) {
	dlocktest.Run(t, dlocktest.Harness{Features: features, TTL: suiteTTL, New: func(t testing.TB) dlocktest.Namespace {
		prefix := sqltest.Unique("p")
		ours := " WHERE resource_name LIKE '" + prefix + "%'"
		return dlocktest.Namespace{
			Open:      func() driver.Store { return s.open(t, sqllock.Options{Prefix: prefix}) },
			LoseData:  func() { s.exec(t, "DELETE FROM "+s.table+ours) },
			StepClock: func(by time.Duration) time.Duration { s.stepClock(t, by, ours); return 0 },
		}
	}})
}

func TestConformancePostgres(t *testing.T) {
	t.Parallel()
	for _, way := range postgresWays {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			testkit.SkipShort(t)
			if way.name != "pgx" {
				testkit.Long(t) // the same store, reached in another way
			}
			conform(t, postgres(t, way.name).migrated(t).app(t))
		})
	}
}

func TestContentionPostgres(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	// Only a crash would lose data, and this test has none.
	s := postgresOn(t, sqltest.Postgres(t, sqltest.Options{Settings: []string{"fsync=off"}}), "pgx").migrated(t)
	for _, c := range contentions {
		crowd.Contend(t, s.hosts(t), c.slots, c.workers, c.attempts*8)
	}
}
