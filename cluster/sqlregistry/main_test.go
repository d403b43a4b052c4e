package sqlregistry_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/cluster/sqlregistry/pgxregistry"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

func TestMain(m *testing.M) { servertest.Main(m, func() error { return goleak.Find() }) }

// A subject is one database, reached in one way. Tests that take a subject run on all databases.
type subject struct {
	// db opens a pool, which is closed after the test. It takes the address of the server and a
	// user of the database. "" stands for the server's own address, and for the owner of the
	// database.
	db func(t testing.TB, addr, user string) *sql.DB
	of func(*sql.DB, sqlregistry.Options) *sqlregistry.Store
	// dsn returns the DSN of that pool, for pgxregistry. If it is nil, of makes the store.
	dsn func(addr, user string) string

	server   *sqltest.Server // nil for SQLite
	database string
	trips    int64 // round trips per call
	proxied  bool  // db already connects through a proxy
}

// open returns a store for one more host.
func (s subject) open(t testing.TB) *sqlregistry.Store {
	t.Helper()
	return s.store(t, "", "", sqlregistry.Options{})
}

// store returns a store. Its address and user have the same meaning as in db.
func (s subject) store(t testing.TB, addr, user string, opts sqlregistry.Options) *sqlregistry.Store {
	t.Helper()
	if s.dsn == nil {
		return s.of(s.db(t, addr, user), opts)
	}
	pool, err := pgxpool.New(t.Context(), s.dsn(addr, user))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	store := pgxregistry.New(pool, opts)
	t.Cleanup(func() {
		if err := errors.Join(store.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	})
	return store
}

// migrated returns a store whose table exists.
func (s subject) migrated(t testing.TB) *sqlregistry.Store {
	t.Helper()
	store := s.open(t)
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return store
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
