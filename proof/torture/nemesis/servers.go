package nemesis

import (
	"fmt"
	"strings"
	"time"

	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// PostgresFaults are the faults of Postgres, the most dangerous ones for leases first.
var PostgresFaults = []string{"store_kill", "store_stop", "store_restart", "store_connections_killed",
	"store_table_locked", "store_rows_locked"}

// Postgres performs a fault on a server, and returns when it is over. A fault may lock the whole
// table, or some rows that match the condition.
func Postgres(s *sqltest.Server, f Fault, table, rows string) error {
	switch f.Kind {
	case "store_kill":
		if err := s.Kill(); err != nil {
			return err
		}
		time.Sleep(f.For)
		return s.Restart()
	case "store_restart":
		if err := s.Stop(); err != nil {
			return err
		}
		time.Sleep(f.For)
		return s.Restart()
	case "store_stop":
		return Stop(s.Server, f.For)
	case "store_connections_killed":
		_, err := s.Exec("", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "+
			"AND backend_type = 'client backend'")
		return err
	case "store_table_locked": // without lock_timeout, all would queue behind it for as long as it waits
		_, err := s.Exec("", fmt.Sprintf("BEGIN; SET LOCAL lock_timeout = '20s'; "+
			"LOCK TABLE %s IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(%f); COMMIT", table, f.For.Seconds()))
		if err != nil {
			open, _ := s.Exec("", "SELECT now() - xact_start, state, application_name, query FROM pg_stat_activity "+
				"WHERE xact_start < now() - interval '5s'")
			err = fmt.Errorf("%w; transactions that are open: %s", err, open)
		}
		return err
	case "store_rows_locked": // a client forgot to commit
		_, err := s.Exec("", fmt.Sprintf("BEGIN; SELECT 1 FROM %s WHERE %s ORDER BY random() LIMIT 3 FOR UPDATE; "+
			"SELECT pg_sleep(%f); COMMIT", table, rows, f.For.Seconds()))
		return err
	default:
		return f.Unknown()
	}
}

// MariaDBFaults are the faults of MariaDB.
var MariaDBFaults = PostgresFaults

// MariaDB is Postgres for a MariaDB server.
func MariaDB(s *sqltest.Server, f Fault, database, table, rows string) error {
	switch f.Kind {
	case "store_connections_killed":
		ids, err := s.Exec("", "SELECT id FROM information_schema.processlist WHERE db = '"+database+"'")
		if err != nil {
			return err
		}
		for _, id := range strings.Fields(ids) {
			_, _ = s.Exec("", "KILL "+id) // it may have ended
		}
		return nil
	case "store_table_locked":
		_, err := s.Exec(database, fmt.Sprintf("SET SESSION lock_wait_timeout = 20; LOCK TABLES %s WRITE; "+
			"SELECT SLEEP(%f); UNLOCK TABLES", table, f.For.Seconds()))
		return err
	case "store_rows_locked": // a client forgot to commit
		_, err := s.Exec(database, fmt.Sprintf("BEGIN; SELECT 1 FROM %s WHERE %s ORDER BY RAND() LIMIT 3 FOR UPDATE; "+
			"SELECT SLEEP(%f); COMMIT", table, rows, f.For.Seconds()))
		return err
	default:
		return Postgres(s, f, table, rows)
	}
}

// Stop pauses a server for a while.
func Stop(s *servertest.Server, length time.Duration) error {
	if err := s.Pause(); err != nil {
		return err
	}
	time.Sleep(length)
	return s.Resume()
}
