package postgres

import (
	"cmp"
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

func TestMain(m *testing.M) { servertest.Main(m, func() error { return goleak.Find() }) }

var sharedPostgres servertest.Shared[*sqltest.Server]

// quickPostgres returns a server that does not wait for its disk. Only a crash of the machine would
// lose data, and no test crashes the machine.
func quickPostgres(t testing.TB) *sqltest.Server {
	t.Helper()
	sqltest.RequirePostgres(t)
	return sharedPostgres.Get(t, func() (*sqltest.Server, error) {
		return sqltest.StartPostgres(sqltest.Options{Settings: []string{"fsync=off"}})
	})
}

// A database is a database that only these tests use.
type database struct {
	server *sqltest.Server
	name   string
	mode   pgx.QueryExecMode // 0 means pgx's default
}

func newDatabase(t testing.TB) database {
	t.Helper()
	server := quickPostgres(t)
	return database{server: server, name: server.NewDatabase(t)}
}

// pool opens a pool that is closed after the test. If addr is empty, it connects to the server
// itself. If user is empty, it connects as the database's owner.
func (d database) pool(t testing.TB, addr, user string) *pgxpool.Pool {
	t.Helper()
	dsn := strings.Replace(d.server.DSN(user, "", d.name), d.server.Addr(), cmp.Or(addr, d.server.Addr()), 1)
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	if d.mode != 0 {
		config.ConnConfig.DefaultQueryExecMode = d.mode
	}
	config.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// on returns a store on a pool. The store's own connections are closed after the test.
func on(t testing.TB, pool *pgxpool.Pool, table string) *Store {
	t.Helper()
	s, err := New(pool, Options{TableName: table, Schema: "public"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.own.close)
	return s
}

// migrated returns a store whose tables exist.
func (d database) migrated(t testing.TB) *Store {
	t.Helper()
	s := on(t, d.pool(t, "", ""), "durable")
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// exec executes statements as the owner of the database.
func (d database) exec(t testing.TB, statements ...string) {
	t.Helper()
	pool := d.pool(t, "", "")
	for _, statement := range statements {
		if _, err := pool.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// pgxTx is like the Tx that pgxdurable.Tx returns.
type pgxTx struct{ tx pgx.Tx }

func (t pgxTx) QueryRow(ctx context.Context, query string, args ...any) store.Row {
	return t.tx.QueryRow(ctx, query, args...)
}
