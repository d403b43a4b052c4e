package sqllock_test

import (
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/sqltest"
	"github.com/tickslot/tickslot/proof/timertest"
)

// timersPeriod is long enough for a database that serves the timers of several suites with half a
// processor.
const timersPeriod = 200 * time.Millisecond

// keepsTimers tests the invariants I1 to I12 of timers on several hosts. Each test uses a new
// namespace.
func keepsTimers(t *testing.T, fresh func(t testing.TB) subject) {
	t.Helper()
	timertest.Run(t, timertest.Harness{
		Period: timersPeriod,
		New: func(t testing.TB) timertest.Store {
			s := fresh(t)
			prefix := sqltest.Unique("timers")
			return timertest.Store{Open: func(t testing.TB) driver.Store {
				return s.open(t, sqllock.Options{Prefix: prefix})
			}}
		},
		Misconfigured: func(t testing.TB) (driver.Store, []string) {
			return fresh(t).open(t, sqllock.Options{Prefix: "a\nb", Retention: 1}),
				[]string{`Prefix "a\nb"`, "Retention 1ns: at least 24h"}
		},
	})
}

// once returns a function that always returns the same subject.
func once(s subject) func(testing.TB) subject { return func(testing.TB) subject { return s } }

func TestTimersPostgres(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	for _, way := range postgresWays {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			keepsTimers(t, once(postgres(t, way.name).migrated(t).app(t)))
		})
	}
}
