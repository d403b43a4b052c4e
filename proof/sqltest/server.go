package sqltest

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/tickslot/tickslot/proof/servertest"
)

// Options configure a server. The zero value is a plain one.
type Options struct {
	// Settings are further settings, as name=value, which win over this
	// package's: of the command line for Postgres and MariaDB, of the
	// configuration file for PgBouncer. Default: none.
	Settings []string
	// ClockAhead is how far the wall clock of a Postgres is ahead of the right time (negative:
	// behind it), by libfaketime. That is what statements see: monotonic clocks are right, and
	// processes that serve no clients (autovacuum) may have the right time, too. Default: 0.
	ClockAhead time.Duration
	// TLS makes a Postgres or MariaDB refuse logins over TCP without TLS. It has the certificate of
	// Server.WriteCerts. Default: no TLS.
	TLS bool
	// StandbyOf is the Postgres of which this one is a standby, until pg_promote() is called in it.
	// Default: it is a primary.
	StandbyOf *Server
}

// Server is one server process with its children. Its methods are safe for
// concurrent use.
type Server struct {
	*servertest.Server

	// client returns a command that reads SQL, and executes it as superuser.
	client func(database string) *exec.Cmd
	dsn    func(user, password, database string) string
	drop   func(database string) error
	// state tells databases apart that are not as CREATE DATABASE makes them, and empty tries to
	// make one so again. "": databases are dropped.
	state, empty string
	made         databases
	// read reads the next message of a client.
	read func(conn io.Reader, first bool) (message, error)
}

// DSN returns what a user connects to a database with: a postgres:// URL, or the
// data source name that go-sql-driver/mysql takes. An empty user is the
// superuser, an empty password the one that all have.
func (s *Server) DSN(user, password, database string) string { return s.dsn(user, password, database) }

// Exec executes SQL statements as superuser in a database, and returns the rows,
// a line each, with | (Postgres) or a tab (MariaDB) between the columns. Without
// a database it uses the one that is always there. An error ends it, and holds
// what the server said.
//
// It runs the server's own client program, and is for setting up tests: it takes
// tens of milliseconds. The database "pgbouncer" of a PgBouncer takes its
// commands (SHOW POOLS).
func (s *Server) Exec(database, sql string) (string, error) {
	cmd := s.client(database)
	cmd.Stdin = strings.NewReader(sql)
	out, err := s.Run(cmd)
	return strings.TrimSuffix(out, "\n"), err
}

// says is the Ready of a server whose log tells when it is.
func says(text string) func(context.Context, *servertest.Server, int, string) error {
	missing := errors.New("the log does not say: " + text)
	return func(_ context.Context, _ *servertest.Server, _ int, log string) error {
		if strings.Contains(log, text) {
			return nil
		}
		return missing
	}
}

// hermetic gives a command an environment in which no setting of the user's
// changes what it does.
func hermetic(cmd *exec.Cmd, dir string) *exec.Cmd {
	cmd.Env = []string{"PATH=" + path(), "HOME=" + dir, "TMPDIR=" + dir, "LC_ALL=C"}
	return cmd
}
