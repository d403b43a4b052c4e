//go:build unix

package sqllock_test

import (
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/sqltest"
	"github.com/tickslot/tickslot/proof/timertest"
)

// stoppedEnv is the environment variable that makes the test binary a separate host. Its value has
// a driver, a prefix, and the location of the database.
const stoppedEnv = "TICKSLOT_TEST_CHILD_STOPPED"

func init() {
	if words := strings.SplitN(os.Getenv(stoppedEnv), " ", 3); len(words) == 3 {
		db, err := sql.Open(words[0], words[2])
		if err == nil {
			db.SetMaxOpenConns(4)
			open := map[string]func(*sql.DB, sqllock.Options) *sqllock.Store{"pgx": sqllock.Postgres,
				"mysql": sqllock.MySQL, "sqlite": sqllock.SQLite}
			err = timertest.Child(open[words[0]](db, sqllock.Options{Prefix: words[1]}), os.Stdin, os.Stdout)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// Overrides that were set while a host was stopped reach it when it runs again.
//
// Fails in the cases that timertest.Stopped lists.
func TestOverridesWhileStoppedPostgres(t *testing.T) {
	t.Parallel()
	testkit.SkipShort(t)
	s := postgres(t, "database/sql").migrated(t).app(t)
	overridesWhileStopped(t, s, "pgx", sqltest.SharedPostgres(t).DSN("app", "", s.database))
}

func TestOverridesWhileStoppedMySQL(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	server := sqltest.SharedMariaDB(t)
	s := mysqlOn(t, server, oneTrip).migrated(t).app(t)
	overridesWhileStopped(t, s, "mysql", server.DSN("app", "", s.database)+oneTrip)
}

func TestOverridesWhileStoppedSQLite(t *testing.T) {
	t.Parallel()
	brisk(t)
	testkit.Long(t)
	path := sqlitePath(t)
	overridesWhileStopped(t, sqliteOn(path).migrated(t), "sqlite", sqliteDSN(path))
}

func overridesWhileStopped(t *testing.T, s subject, driverName, dsn string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	timertest.Stopped(t, timertest.StoppedHarness{Embedded: driverName == "sqlite",
		New: func(t testing.TB) (timertest.Store, *exec.Cmd) {
			prefix := sqltest.Unique("stopped")
			cmd := exec.Command(exe)
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s", stoppedEnv, driverName, prefix, dsn))
			return timertest.Store{Open: func(t testing.TB) driver.Store {
				return s.open(t, sqllock.Options{Prefix: prefix})
			}}, cmd
		}})
}
