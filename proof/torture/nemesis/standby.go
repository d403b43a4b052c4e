//go:build linux

package nemesis

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/sqltest"
	"github.com/tickslot/tickslot/proof/torture"
)

// promote creates a standby for a Postgres, cuts it off, and kills the server after lag. The
// standby takes over at the server's address, so the commits in between are lost. mark logs from
// when on.
func promote(s *sqltest.Server, lag time.Duration, mark func(kind string, from int64)) (err error) {
	standby, err := sqltest.StartPostgres(sqltest.Options{Settings: []string{"fsync=off"}, StandbyOf: s})
	if err != nil {
		return err
	}
	defer standby.Close()
	from := Mono()
	at, err := s.Exec("", "SELECT pg_current_wal_flush_lsn()")
	if err != nil {
		return err
	}
	behind := fmt.Sprintf("SELECT coalesce(pg_last_wal_replay_lsn() < '%s', true)", strings.TrimSpace(at))
	err = testkit.Poll(20*time.Second, "the standby has what was committed", func() error {
		if late, err := standby.Exec("", behind); err != nil || strings.TrimSpace(late) != "f" {
			return errors.Join(err, errors.New("it is behind"))
		}
		return nil
	})
	if err != nil {
		return err
	}
	cut := func() error { // ALTER SYSTEM must not be in a transaction
		_, err := standby.Exec("", "ALTER SYSTEM SET primary_conninfo = ''")
		if err == nil {
			_, err = standby.Exec("", "SELECT pg_reload_conf()")
		}
		return err
	}
	if err := cut(); err != nil {
		return err
	}
	err = testkit.Poll(20*time.Second, "the standby is cut off", func() error {
		if n, err := standby.Exec("", "SELECT count(*) FROM pg_stat_wal_receiver"); err != nil ||
			strings.TrimSpace(n) != "0" {
			return errors.Join(err, errors.New("it receives"))
		}
		return nil
	})
	if err != nil {
		return err
	}
	time.Sleep(lag)
	defer func() { mark(torture.Promoted, from) }()
	if err := s.Kill(); err != nil {
		return err
	}
	if _, err := standby.Exec("", "SELECT pg_promote()"); err != nil {
		return err
	}
	if err := standby.Stop(); err != nil {
		return err
	}
	data := filepath.Join(s.Dir(), "data")
	if err := errors.Join(os.RemoveAll(data), os.Rename(filepath.Join(standby.Dir(), "data"), data)); err != nil {
		return err
	}
	return s.Restart()
}
