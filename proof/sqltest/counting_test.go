package sqltest

import (
	"database/sql"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
)

// Fails when a statement in a batch is missed, a login or a ping counts, or preparing a statement
// does not count.
func TestCountingProxyCountsPostgres(t *testing.T) {
	t.Parallel()
	server := SharedPostgres(t)
	wire := server.NewCountingProxy(t)
	conn, err := pgx.Connect(t.Context(), wire.DSN("", "", server.NewDatabase(t)))
	must(t, err)
	defer conn.Close(t.Context())
	exec := func(mode pgx.QueryExecMode) func() error {
		return func() error {
			_, err := conn.Exec(t.Context(), "SELECT $1::int", mode, 1)
			return err
		}
	}
	counts(t, wire, []counted{
		{"a login", func() error { return nil }, 0, 0},
		{"a ping", func() error { return conn.Ping(t.Context()) }, 0, 0},
		{"a statement", exec(pgx.QueryExecModeExec), 1, 1},
		{"a statement that is prepared", exec(pgx.QueryExecModeCacheStatement), 2, 1},
		{"a statement that was prepared", exec(pgx.QueryExecModeCacheStatement), 1, 1},
		{"a statement, simple protocol", exec(pgx.QueryExecModeSimpleProtocol), 1, 1},
		{"a batch", func() error {
			b := &pgx.Batch{}
			for range 3 {
				b.Queue("SELECT $1::int", 1)
			}
			return conn.SendBatch(t.Context(), b).Close()
		}, 1, 3},
	})
}

// Fails when a login counts, or closing a prepared statement, for which no client waits.
func TestCountingProxyCountsMariaDB(t *testing.T) {
	t.Parallel()
	server := SharedMariaDB(t)
	wire := server.NewCountingProxy(t)
	dsn := wire.DSN("", "", server.NewDatabase(t))
	open := func(dsn string) *sql.DB {
		db, err := sql.Open("mysql", dsn)
		must(t, err)
		t.Cleanup(func() { db.Close() })
		return db
	}
	direct, prepared := open(dsn+"?interpolateParams=true"), open(dsn)
	exec := func(db *sql.DB) func() error {
		return func() error {
			_, err := db.ExecContext(t.Context(), "DO ?", 1)
			return err
		}
	}
	counts(t, wire, []counted{
		{"a login and a statement", exec(direct), 1, 1},
		{"a login and a statement that is prepared", exec(prepared), 2, 1},
		{"a statement that is prepared", exec(prepared), 2, 1},
	})
}

// A counted is a client's action and its expected count.
type counted struct {
	what              string
	do                func() error
	trips, statements int64
}

func counts(t *testing.T, wire *CountingProxy, cases []counted) {
	t.Helper()
	for _, c := range cases {
		trips, statements := wire.RoundTrips(), wire.Statements()
		must(t, c.do())
		trips, statements = wire.RoundTrips()-trips, wire.Statements()-statements
		if trips != c.trips || statements != c.statements {
			t.Errorf("%s: %d round trips and %d statements, want %d and %d", c.what, trips, statements, c.trips,
				c.statements)
		}
	}
}
