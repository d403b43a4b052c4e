package sqlregistry_test

import (
	"cmp"
	"database/sql"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/tickslot/tickslot/cluster/clustertest"
	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// ways lists the ways to reach each database.
var ways = map[string]func(t testing.TB) subject{
	"Postgres": func(t testing.TB) subject { return postgresOn(t, quickPostgres(t), "") },
	"Postgres, simple protocol": func(t testing.TB) subject {
		return postgresOn(t, quickPostgres(t), "&default_query_exec_mode=simple_protocol")
	},
	"Postgres, not prepared": func(t testing.TB) subject {
		return postgresOn(t, quickPostgres(t), "&default_query_exec_mode=exec")
	},
	"MySQL":           func(t testing.TB) subject { return mysqlOn(t, quickMariaDB(t), oneTrip) },
	"MySQL, prepared": func(t testing.TB) subject { return mysqlOn(t, quickMariaDB(t), "") },
	"MySQL, strange session": func(t testing.TB) subject {
		return mysqlOn(t, quickMariaDB(t), oneTrip+"&"+sqltest.StrangeMariaDB)
	},
	"Postgres, PgBouncer": func(t testing.TB) subject {
		s := postgresOn(t, quickPostgres(t), "&default_query_exec_mode=exec")
		bouncer := sqltest.PgBouncer(t, s.server, "transaction")
		direct := s.db
		s.db = func(t testing.TB, _, user string) *sql.DB { return direct(t, bouncer.Addr(), user) }
		s.proxied = true // the proxy of Debian 12 exits when calls are canceled
		return s
	},
	"pgx": func(t testing.TB) subject { return pgxOn(postgresOn(t, quickPostgres(t), "")) },
	"pgx, PgBouncer": func(t testing.TB) subject {
		s := postgresOn(t, quickPostgres(t), "")
		bouncer, direct := sqltest.PgBouncer(t, s.server, "transaction"), s.db
		s.db = func(t testing.TB, _, user string) *sql.DB { return direct(t, "", user) }
		s = pgxOn(s)
		there := s.dsn
		s.dsn = func(_, user string) string { return there(bouncer.Addr(), user) }
		s.proxied = true
		return s
	},
	"SQLite": sqliteFile,
}

// pgxOn returns s with stores from package pgxregistry.
func pgxOn(s subject) subject {
	s.dsn = func(addr, user string) string {
		return strings.Replace(s.server.DSN(user, "", s.database), s.server.Addr(), cmp.Or(addr, s.server.Addr()), 1)
	}
	return s
}

// These servers do not flush to disk: only a crash would lose data, and the tests cause none.
var sharedPostgres, sharedMariaDB, sharedMySQL servertest.Shared[*sqltest.Server]

func quickPostgres(t testing.TB) *sqltest.Server {
	t.Helper()
	sqltest.RequirePostgres(t)
	return sharedPostgres.Get(t, func() (*sqltest.Server, error) {
		return sqltest.StartPostgres(sqltest.Options{Settings: []string{"fsync=off"}})
	})
}

func quickMySQL(t testing.TB) *sqltest.Server {
	t.Helper()
	sqltest.RequireMySQL(t)
	return sharedMySQL.Get(t, func() (*sqltest.Server, error) {
		return sqltest.StartMySQL(sqltest.Options{Settings: []string{"innodb-flush-log-at-trx-commit=0"}})
	})
}

func quickMariaDB(t testing.TB) *sqltest.Server {
	t.Helper()
	sqltest.RequireMariaDB(t)
	return sharedMariaDB.Get(t, func() (*sqltest.Server, error) {
		return sqltest.StartMariaDB(sqltest.Options{Settings: []string{"innodb-flush-log-at-trx-commit=0"}})
	})
}

// oneTrip makes the driver insert the arguments into the statement, which saves a round trip.
const oneTrip = "?interpolateParams=true"

func opened(t testing.TB, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	t.Cleanup(func() { db.Close() })
	return db
}

func postgresOn(t testing.TB, server *sqltest.Server, params string) subject {
	t.Helper()
	database := server.NewDatabase(t)
	return subject{server: server, database: database, trips: 1, of: sqlregistry.Postgres,
		db: func(t testing.TB, addr, user string) *sql.DB {
			dsn := server.DSN(user, "", database) + params
			return opened(t, "pgx", strings.Replace(dsn, server.Addr(), cmp.Or(addr, server.Addr()), 1))
		}}
}

func mysqlOn(t testing.TB, server *sqltest.Server, params string) subject {
	t.Helper()
	// In this collation upper and lower case are equal.
	database := server.NewDatabase(t, "CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
	trips := int64(2)
	if strings.Contains(params, oneTrip) {
		trips = 1
	}
	return subject{server: server, database: database, trips: trips, of: sqlregistry.MySQL,
		db: func(t testing.TB, addr, user string) *sql.DB {
			dsn := server.DSN(user, "", database) + params
			return opened(t, "mysql", strings.Replace(dsn, server.Addr(), cmp.Or(addr, server.Addr()), 1))
		}}
}

// sqliteFile returns a subject with a file of its own.
func sqliteFile(t testing.TB) subject {
	t.Helper()
	path := filepath.Join(t.TempDir(), "registry.db")
	return subject{of: sqlregistry.SQLite, db: func(t testing.TB, _, _ string) *sql.DB {
		return opened(t, "sqlite", "file:"+path+"?_pragma=synchronous(normal)")
	}}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	all := maps.Clone(ways)
	all["MySQL itself"] = func(t testing.TB) subject { return mysqlOn(t, quickMySQL(t), oneTrip) }
	for way, of := range all {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			if strings.Contains(way, ",") || way == "MySQL itself" {
				testkit.Long(t) // the same store through another driver mode or related server
			}
			s := of(t)
			db := s.db(t, "", "")
			clustertest.Run(t, clustertest.Harness{New: func(t testing.TB) clustertest.Registries {
				if s.server == nil {
					s := sqliteFile(t)
					return s.registries(t, s.db(t, "", ""))
				}
				return s.registries(t, db)
			}})
		})
	}
}

// registries opens the registries for one test of the suite. It creates their tables through db,
// because a new connection per test, with an empty catalog cache, would take longer than the tests.
// The store connects through a proxy that counts round trips and can hang.
func (s subject) registries(t testing.TB, db *sql.DB) clustertest.Registries {
	t.Helper()
	table := strings.TrimSuffix(sqltest.Unique("t"), ":")
	opts := []sqlregistry.Options{{TableName: table}, {TableName: table + "'o\"th`er"}}
	for _, o := range opts { // as programs do that apply their own migrations
		statements, err := s.store(t, "", "", o).Schema()
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range statements {
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := clustertest.Registries{Store: s.store(t, "", "", opts[0]), Other: s.store(t, "", "", opts[1])}
	if s.server == nil || s.proxied {
		return r
	}
	proxy := s.server.NewCountingProxy(t)
	r.Store = s.store(t, proxy.Addr(), "", opts[0])
	if s.trips == 1 { // the other ways prepare each statement
		r.RoundTrips = proxy.RoundTrips
	}
	r.Hang = func() func() {
		proxy.BlackHole(true)
		return func() { proxy.BlackHole(false) }
	}
	return r
}
