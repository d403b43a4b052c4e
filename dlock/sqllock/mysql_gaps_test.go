package sqllock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// On MySQL, a call locks rows but no gaps between its own name's rows and the rows of others, where
// calls for other names would wait.
//
// Fails when a procedure finds its rows by anything but their key, or locks missing rows.
func TestCallsLockNoGapMySQL(t *testing.T) {
	t.Parallel()
	server := sqltest.MySQL(t, sqltest.Options{Settings: []string{"innodb-flush-log-at-trx-commit=0"}})
	s := mysqlOn(t, server, oneTrip).migrated(t)
	store, root := s.open(t, sqllock.Options{}), openMySQL(t, server.DSN("", "", s.database))
	try := func(name, token string, slots int) (driver.Grant, error) {
		return store.TryAcquire(t.Context(), driver.Request{Name: name, Slots: slots, Token: token, TTL: time.Minute,
			Tick: &driver.Tick{At: time.Now(), Max: 1}})
	}
	for _, name := range []string{"l", "m", "n"} { // neighbors of m
		g, err := try(name, name, 2)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Release(t.Context(), g); err != nil {
			t.Fatal(err)
		}
	}
	s.exec(t, "CREATE TRIGGER slow_update AFTER UPDATE ON distributed_locks FOR EACH ROW "+sqltest.ShowRowLocks)
	s.exec(t, "CREATE TRIGGER slow_insert AFTER INSERT ON distributed_locks FOR EACH ROW "+sqltest.ShowRowLocks)
	var held driver.Grant
	var err error
	calls := []struct {
		what string
		do   func() error
	}{
		{"acquire", func() error { held, err = try("m", "one", 2); return err }},
		{"acquire of a new slot", func() error { _, err := try("m", "two", 2); return err }},
		{"extend", func() error { _, err := store.Extend(t.Context(), time.Minute, held); return err }},
		{"update", func() error { return store.Update(t.Context(), "m", driver.Update{Trigger: &ann}) }},
		{"release", func() error { _, err := store.Release(t.Context(), held); return err }},
	}
	for _, call := range calls {
		locks := sqltest.RowLocks(t, root, s.database, func() {
			if err := call.do(); err != nil {
				t.Errorf("%s: %v", call.what, err)
			}
		})
		if len(locks) == 0 {
			t.Errorf("%s: no lock was seen", call.what)
		}
		for _, lock := range locks {
			switch {
			case strings.Contains(lock, "INSERT_INTENTION"):
			case !strings.Contains(lock, "REC_NOT_GAP"):
				t.Errorf("%s locks a gap: %s", call.what, lock)
			}
		}
	}
}
