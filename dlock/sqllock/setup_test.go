package sqllock_test

import (
	"strings"
	"testing"

	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/proof/timertest"
)

// If the schema or the privileges of a database are missing, no host runs a tick. At the start,
// timers return an error. Later, they skip ticks.
//
// Fails when such a refusal counts as an outage.
func TestI11NotSetUpPostgres(t *testing.T) {
	t.Parallel()
	s := postgres(t, "pgx")
	timertest.NotSetUp(t, s.open(t, sqllock.Options{}), "call Migrate")
	s = s.migrated(t)
	store := s.open(t, sqllock.Options{})
	timertest.SetUpWronglyForAWhile(t, store, func() { s.exec(t, "DROP TABLE "+s.table+" CASCADE") }, func() {
		if err := store.Migrate(t.Context()); err != nil {
			t.Error(err)
		}
	})
	app := s.app(t)
	timertest.SetUpWronglyForAWhile(t, app.open(t, sqllock.Options{}), func() {
		s.exec(t, "REVOKE ALL ON "+s.table+" FROM app")
	},
		func() { s.exec(t, strings.Join(s.grants, "\n")) })
}
