package sqltest

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/servertest"
)

// only returns the options of an optional argument.
func only(opts []Options) Options {
	if len(opts) == 0 {
		return Options{}
	}
	return opts[0]
}

// RequirePostgres skips the test if there is no Postgres: see servertest.Require.
func RequirePostgres(t testing.TB) {
	t.Helper()
	_, err := findPostgres()
	servertest.Require(t, err, "install Postgres 15 or newer "+
		"(apt-get install postgresql, or brew install postgresql)")
}

// RequireMariaDB skips the test if there is no MariaDB or MySQL.
func RequireMariaDB(t testing.TB) {
	t.Helper()
	_, err := findMariaDB()
	servertest.Require(t, err, "install MariaDB 10.11 or newer "+
		"(apt-get install mariadb-server-core mariadb-client-core, or brew install mariadb)")
}

// RequirePgBouncer skips the test if there is no PgBouncer.
func RequirePgBouncer(t testing.TB) {
	t.Helper()
	_, err := findPgBouncer()
	servertest.Require(t, err, "install PgBouncer (sh scripts/fetch.sh pgbouncer-1.26, or brew install pgbouncer)")
}

// Postgres is StartPostgres for a test.
func Postgres(t testing.TB, opts ...Options) *Server {
	t.Helper()
	RequirePostgres(t)
	if only(opts).ClockAhead != 0 {
		servertest.RequireFaketime(t)
	}
	s, err := StartPostgres(only(opts))
	return servertest.Own(t, s, err)
}

// MariaDB is StartMariaDB for a test.
func MariaDB(t testing.TB, opts ...Options) *Server {
	t.Helper()
	RequireMariaDB(t)
	s, err := StartMariaDB(only(opts))
	return servertest.Own(t, s, err)
}

// PgBouncer is StartPgBouncer for a test.
func PgBouncer(t testing.TB, target *Server, mode string, opts ...Options) *Server {
	t.Helper()
	RequirePgBouncer(t)
	s, err := StartPgBouncer(target, mode, only(opts))
	return servertest.Own(t, s, err)
}

// RequireMySQL skips the test if there is no MySQL.
func RequireMySQL(t testing.TB) {
	t.Helper()
	_, err := findMySQL()
	servertest.Require(t, err, "install MySQL 9 (sh scripts/fetch.sh mysql)")
}

// MySQL is StartMySQL for a test.
func MySQL(t testing.TB, opts ...Options) *Server {
	t.Helper()
	RequireMySQL(t)
	s, err := StartMySQL(only(opts))
	return servertest.Own(t, s, err)
}

var sharedPostgres, sharedMariaDB servertest.Shared[*Server]

// SharedPostgres returns the test binary's one plain Postgres, for tests that use their own
// database (NewDatabase) and do not disturb the server. The binary's TestMain must call
// servertest.Main.
func SharedPostgres(t testing.TB) *Server {
	t.Helper()
	RequirePostgres(t)
	return sharedPostgres.Get(t, func() (*Server, error) { return StartPostgres(Options{}) })
}

// SharedMariaDB is SharedPostgres for MariaDB.
func SharedMariaDB(t testing.TB) *Server {
	t.Helper()
	RequireMariaDB(t)
	return sharedMariaDB.Get(t, func() (*Server, error) { return StartMariaDB(Options{}) })
}

// NewDatabase creates a database for a test, and returns its name. After the test, its remaining
// sessions are ended, and it is dropped or emptied for reuse, unless the server has ended. The
// clauses follow the name in CREATE DATABASE, such as "ENCODING 'LATIN1' TEMPLATE template0", or
// "CHARACTER SET latin1".
func (s *Server) NewDatabase(t testing.TB, clauses ...string) string {
	t.Helper()
	name, err := s.database(strings.Join(clauses, " "))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.Pid() == 0 || len(clauses) == 0 && s.vacate(name) {
			return
		}
		// The server frees a closed session's resources, such as all its locks, a moment later.
		err := testkit.Poll(testkit.Patience, "the database is dropped", func() error { return s.drop(name) })
		if err != nil {
			t.Error(err)
		}
	})
	return name
}

var prefixes atomic.Int64

// Unique returns the prefix with a number and a colon. No other test has it, not even the same test
// in another round of -count.
func Unique(prefix string) string { return fmt.Sprintf("%s%d:", prefix, prefixes.Add(1)) }
