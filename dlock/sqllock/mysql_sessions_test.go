package sqllock_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// The settings of a session may chain transactions, disconnect after each, or limit the rows of a
// query.
//
// Fails when a transaction ends by the session's completion_type: the next one cannot begin, or its
// answer is lost with the connection. Fails when a query has no limit of its own.
func TestSettingsOfTheSessionMySQL(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedMariaDB(t)
	for _, setting := range [][]string{
		{"completion_type='CHAIN'"}, {"completion_type='RELEASE'"}, {"completion_type='CHAIN'", "autocommit=0"},
		{"sql_select_limit=1"},
	} {
		for way, params := range map[string]string{"one round trip": oneTrip + "&", "prepared": "?"} {
			t.Run(fmt.Sprint(setting, way), func(t *testing.T) {
				t.Parallel()
				s := mysqlOn(t, server, "")
				store := viaMySQL(server.DSN("", "", s.database)+params+settings(slices.Clone(setting)...))(t,
					sqllock.Options{})
				if err := store.Migrate(t.Context()); err != nil {
					t.Fatal(err)
				}
				everything(t, store)
				everything(t, store) // on connections that were used before
				names := []string{"a", "b", "c"}
				for _, name := range names {
					if err := store.Update(t.Context(), name, driver.Update{Limit: &driver.LimitOverride{Cause: ann,
						Slots: 3}}); err != nil {
						t.Fatal(err)
					}
					for i := range 3 {
						if _, err := store.TryAcquire(t.Context(),
							driver.Request{Name: name, Slots: 3, Token: fmt.Sprint(name, i),
								TTL: time.Hour}); err != nil {
							t.Fatal(err)
						}
					}
					if held, err := store.List(t.Context(), name, 3); err != nil || len(held) != 3 {
						t.Errorf("%d leases, %v: there are 3", len(held), err)
					}
				}
				orders, err := store.Inspect(t.Context(), names...)
				if err != nil {
					t.Fatal(err)
				}
				for _, o := range orders {
					if o.Limit == nil {
						t.Errorf("the limit of %s is not told", o.Name)
					}
				}
			})
		}
	}
}
