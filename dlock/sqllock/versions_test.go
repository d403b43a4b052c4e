package sqllock_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// twoVersions simulates a later version of this package. That version stores rows that this version
// would misread, and a higher format in the row without a name. From then on, this version grants
// nothing and says why. Current runs may end.
func twoVersions(t *testing.T, s subject, empty string) {
	t.Helper()
	s = s.migrated(t)
	store := s.open(t, sqllock.Options{})
	g, err := store.TryAcquire(t.Context(), request("held", 2))
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, driver.ErrSetup) || !strings.Contains(fmt.Sprint(err), "format 2") ||
			!strings.Contains(fmt.Sprint(err), "update") {
			t.Errorf("%s: %v: must be refused as set up wrongly, and say that this host is to be updated", what, err)
		}
	}
	s.exec(t, "INSERT INTO "+s.table+" (resource_name, slot, overrides_version) VALUES ("+empty+", -1, 1)")
	everything(t, store) // a known format
	s.exec(t, "UPDATE "+s.table+" SET overrides_version = 2 WHERE slot = -1 AND resource_name = "+empty)
	for what, req := range map[string]driver.Request{
		"a free slot":    request("held", 2),
		"a new name":     request("new", 3),
		"a mutex":        request("mutex", 0),
		"the same again": {Name: "held", Slots: 2, Token: g.Token, TTL: time.Minute},
		"one with a tick": {Name: "tick", Slots: 1, Token: "t", TTL: time.Minute,
			Tick: &driver.Tick{At: time.Now(), Max: 1}},
	} {
		if what == "a free slot" {
			req.Token = "another"
		}
		_, err := store.TryAcquire(t.Context(), req)
		refused(what, err)
	}
	refused("Verify", store.Verify(t.Context()))
	refused("Migrate", store.Migrate(t.Context()))
	if r, err := store.Extend(t.Context(), time.Hour, g); err != nil || r[0].Outcome != driver.GrantOK {
		t.Errorf("extend: %+v, %v", r, err)
	}
	if r, err := store.Release(t.Context(), g); err != nil || r[0].Outcome != driver.GrantOK {
		t.Errorf("release: %+v, %v", r, err)
	}
	if err := store.Cleanup(t.Context()); err != nil {
		t.Error(err)
	}
	_, err = store.TryAcquire(t.Context(), request("cleaned", 2))
	refused("acquire after Cleanup", err)
}

// Fails when an acquire does not check the format, or when Cleanup deletes the format's row.
func TestTwoVersionsOfUs(t *testing.T) {
	t.Parallel()
	for way, params := range map[string]string{"one trip": oneTrip, "prepared": ""} {
		t.Run("MySQL "+way, func(t *testing.T) {
			t.Parallel()
			twoVersions(t, mysqlOn(t, sqltest.SharedMariaDB(t), params), "''")
		})
	}
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		twoVersions(t, sqliteOn(sqlitePath(t)), "''")
	})
	t.Run("Postgres", func(t *testing.T) {
		t.Parallel()
		twoVersions(t, postgres(t, "pgx"), "''")
	})
}
