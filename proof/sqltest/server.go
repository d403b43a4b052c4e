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
	// Settings are additional settings, as name=value, which override this package's. Postgres and
	// MariaDB get them on the command line, PgBouncer in its configuration file. Default: none.
	Settings []string
	// ClockAhead is how far the wall clock of a Postgres is ahead of the correct time (negative:
	// behind), through libfaketime. Statements see that time. Monotonic clocks are correct, and
	// processes that serve no clients (autovacuum) may have the correct time. Default: 0.
	ClockAhead time.Duration
	// TLS makes a Postgres or MariaDB refuse logins over TCP without TLS. It uses the certificate
	// of Server.WriteCerts. Default: no TLS.
	TLS bool
	// StandbyOf makes this Postgres a standby of another one until pg_promote() is called. Default:
	// a primary.
	StandbyOf *Server
}

// A Server is one server process with its children. Its methods are safe for concurrent use.
type Server struct {
	*servertest.Server

	// client returns a command that reads SQL, and executes it as superuser.
	client func(database string) *exec.Cmd
	dsn    func(user, password, database string) string
	drop   func(database string) error
	// state is SQL that detects changes from a new database, and empty tries to undo them. If state
	// is "", databases are dropped.
	state, empty string
	made         databases
	// read reads the next message of a client.
	read func(conn io.Reader, first bool) (message, error)
}

// DSN returns a connection string for a user and a database: a postgres:// URL, or a data source
// name for go-sql-driver/mysql. An empty user means the superuser, an empty password the shared
// one.
func (s *Server) DSN(user, password, database string) string { return s.dsn(user, password, database) }

// Exec executes SQL statements as superuser in a database, and returns the rows, one per line, with
// | (Postgres) or a tab (MariaDB) between the columns. Without a database, it uses the one that
// always exists. It stops at an error, which contains the server's message.
//
// It runs the server's own client program and takes tens of milliseconds, so use it to set up
// tests. The database "pgbouncer" of a PgBouncer accepts its commands (SHOW POOLS).
func (s *Server) Exec(database, sql string) (string, error) {
	cmd := s.client(database)
	cmd.Stdin = strings.NewReader(sql)
	out, err := s.Run(cmd)
	return strings.TrimSuffix(out, "\n"), err
}

// says returns the Ready function of a server that logs when it is ready.
func says(text string) func(context.Context, *servertest.Server, int, string) error {
	missing := errors.New("the log does not say: " + text)
	return func(_ context.Context, _ *servertest.Server, _ int, log string) error {
		if strings.Contains(log, text) {
			return nil
		}
		return missing
	}
}

// hermetic gives a command an environment in which no user setting affects it.
func hermetic(cmd *exec.Cmd, dir string) *exec.Cmd {
	cmd.Env = []string{"PATH=" + path(), "HOME=" + dir, "TMPDIR=" + dir, "LC_ALL=C"}
	return cmd
}
