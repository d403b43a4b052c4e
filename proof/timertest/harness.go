package timertest

import (
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/testkit"
)

// A Harness describes a store to Run.
type Harness struct {
	// New returns a new, empty namespace. It is called for every test, concurrently. Close its
	// resources in t.Cleanup.
	New func(t testing.TB) Store

	// Misconfigured returns a store whose settings have faults, and words that its Check reports.
	// If nil, the store is no driver.Checker, and the suite uses a fake one. Default nil.
	Misconfigured func(t testing.TB) (store dlock.DistributedLock, says []string)

	// TTL is the length of the leases. StoreTimeout is a third of it, and a call has half of that,
	// so it must be long enough for a store that is slow on a busy machine. The suite takes about
	// two TTLs plus seven seconds. Default 3 s.
	TTL time.Duration

	// Period is the period of the timers. A longer period means fewer calls per second; an
	// overloaded store delays heartbeats. Default 100 ms: three thousand calls, most of them in the
	// first five seconds.
	Period time.Duration
}

// A Store is a namespace used by one test.
type Store struct {
	// Open returns another host's client for this namespace. It is closed in t.Cleanup. A test
	// opens up to six.
	Open func(t testing.TB) dlock.DistributedLock

	// Down makes the namespace's server unreachable for all its clients, and Up makes it reachable
	// again. Only the tests of I7 and I12 call them. If nil, the suite makes the clients' calls
	// hang.
	Down, Up func()
}

// Run checks that timers on a store keep their invariants, with one subtest for each.
func Run(t *testing.T, h Harness) {
	if h.TTL == 0 {
		h.TTL = 3 * time.Second
	}
	if h.Period == 0 {
		h.Period = 100 * time.Millisecond
	}
	s := &suite{Harness: h, late: testkit.MeasureLateness(t, minStall)}
	for _, inv := range invariants {
		t.Run(inv.name, func(t *testing.T) {
			t.Parallel()
			inv.show(s, t)
		})
	}
}

type suite struct {
	Harness
	late *testkit.Lateness
}

// An invariant is one subtest.
type invariant struct {
	name string
	show func(*suite, *testing.T)
}

var invariants = []invariant{
	{"I1 valid runs never exceed MaxConcurrency", overlap},
	{"I1 valid runs never exceed a limit that timers share", shared},
	{"I2 a lost run is told before its slot is granted", loss},
	{"I3 a tick starts at most MaxPerTick runs", rate},
	{"I4 fences of a slot grow", fences},
	{"I5 only its holder extends or releases", strangers},
	{"I6 a killed host's slots come back within a TTL", killed},
	{"I7 timers outlive the store's outages", outages},
	{"I8 Run leaves nothing behind", draining},
	{"I9 every tick is accounted for", accounting},
	{"I10 bad handlers harm nobody", handlers},
	{"I11 all faults come back at once", registration},
	{"I12 probes cost the store nothing", probes},
	{"I13 a role passes from leader to leader", leaders},
	{"I13 several leaders have slots of their own", shards},
	{"overrides reach every host", controls},
}
