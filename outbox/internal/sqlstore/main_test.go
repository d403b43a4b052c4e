package sqlstore_test

import (
	"cmp"
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/tickslot/tickslot/internal/pgxkit"
	"github.com/tickslot/tickslot/outbox/internal/sqlstore"
	"github.com/tickslot/tickslot/outbox/internal/store"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

func TestMain(m *testing.M) { servertest.Main(m, func() error { return goleak.Find() }) }

// A subject is a database and a way to reach it.
type subject struct {
	// db opens a pool that is closed after the test. An empty addr means the address of the server,
	// and an empty user means the owner of the database.
	db func(t testing.TB, addr, user string) *sql.DB
	// of returns a store on a pool from db.
	of func(t testing.TB, db *sql.DB, table string) (*sqlstore.Store, error)

	server   *sqltest.Server // nil for SQLite
	database string
	prepares bool // the driver makes more round trips to prepare statements
	behind   bool // there is a proxy between the store and the server
}

// on returns a store on a pool.
func (s subject) on(t testing.TB, db *sql.DB, table string) *sqlstore.Store {
	t.Helper()
	store, err := s.of(t, db, table)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// migrated returns a store whose tables exist, and its pool.
func (s subject) migrated(t testing.TB) (*sqlstore.Store, *sql.DB) {
	t.Helper()
	db := s.db(t, "", "")
	store := s.on(t, db, "")
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return store, db
}

// exec executes statements as the owner of the database.
func (s subject) exec(t testing.TB, statements ...string) {
	t.Helper()
	db := s.db(t, "", "")
	for _, statement := range statements {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// Servers that do not wait for their disks. Only a crash of the machine would lose data, and no
// test has one.
var sharedPostgres, sharedMariaDB, sharedMySQL servertest.Shared[*sqltest.Server]

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

// oneTrip makes the driver insert the arguments into the text of the statement.
const oneTrip = "?interpolateParams=true"

func mysqlOn(t testing.TB, server *sqltest.Server, params string) subject {
	t.Helper()
	// the collation ignores case
	database := server.NewDatabase(t, "CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
	return subject{server: server, database: database, prepares: !strings.Contains(params, oneTrip),
		of: func(_ testing.TB, db *sql.DB, table string) (*sqlstore.Store, error) {
			return sqlstore.MySQL(db, sqlstore.Options{TableName: table})
		},
		db: func(t testing.TB, addr, user string) *sql.DB {
			dsn := server.DSN(user, "", database) + params
			return opened(t, "mysql", strings.Replace(dsn, server.Addr(), cmp.Or(addr, server.Addr()), 1))
		}}
}

func quickPostgres(t testing.TB) *sqltest.Server {
	t.Helper()
	sqltest.RequirePostgres(t)
	return sharedPostgres.Get(t, func() (*sqltest.Server, error) {
		return sqltest.StartPostgres(sqltest.Options{Settings: []string{"fsync=off"}})
	})
}

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

// onPgx returns a Pool like the one of pgxoutbox. It listens at dsn, or does not listen if dsn is
// empty.
func onPgx(db *sql.DB, dsn string) sqlstore.Pool {
	p := sqlstore.Pool{DB: db, Transact: pgxkit.TransactSQL}
	if dsn != "" {
		p.Listen = func(ctx context.Context, channel string, woken func()) error {
			conn, err := pgx.Connect(ctx, dsn)
			if err != nil {
				return err
			}
			return pgxkit.Listen(ctx, conn, channel, woken)
		}
	}
	return p
}

func postgresOn(t testing.TB, server *sqltest.Server, params string) subject {
	t.Helper()
	database := server.NewDatabase(t)
	dsn := func(addr, user string) string {
		return strings.Replace(server.DSN(user, "", database), server.Addr(), cmp.Or(addr, server.Addr()), 1)
	}
	return subject{server: server, database: database,
		of: func(_ testing.TB, db *sql.DB, table string) (*sqlstore.Store, error) {
			return sqlstore.Postgres(onPgx(db, dsn("", "")), sqlstore.Options{TableName: table})
		},
		db: func(t testing.TB, addr, user string) *sql.DB { return opened(t, "pgx", dsn(addr, user)+params) }}
}

// sqliteFile returns a subject on its own file.
func sqliteFile(t testing.TB) subject {
	t.Helper()
	path := filepath.Join(t.TempDir(), "outbox.db")
	return subject{
		of: func(_ testing.TB, db *sql.DB, table string) (*sqlstore.Store, error) {
			return sqlstore.SQLite(db, sqlstore.Options{TableName: table})
		},
		db: func(t testing.TB, _, _ string) *sql.DB {
			return opened(t, "sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(10000)&"+
				"_pragma=synchronous(normal)")
		}}
}

// sqlTx is like the Tx that outbox.SQLTx returns.
type sqlTx struct{ tx *sql.Tx }

func (t sqlTx) QueryRow(ctx context.Context, query string, args ...any) store.Row {
	return t.tx.QueryRowContext(ctx, query, args...)
}

func (t sqlTx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := t.tx.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}
