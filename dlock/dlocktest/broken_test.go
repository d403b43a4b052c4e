package dlocktest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// A mistake is a fault that a store could have, and the promises that must catch it.
type mistake struct {
	name   string
	caught []string // names of promises, or prefixes of names
	mutate func(*mutant)
}

var mutants = slices.Concat(leaseMistakes, tickMistakes, successMistakes, controlMistakes, sharedMistakes,
	rateMistakes, delayMistakes, clockMistakes, enumerationMistakes)

// brokenHarness returns a harness for a mutant.
func brokenHarness(name string, mutate func(*mutant)) Harness {
	return Harness{
		Features: Features{Fence: true, AtomicTick: true, Holders: true, Info: true, LastSuccess: true,
			PreviousExpired: true, Control: true, Shared: true, Rate: true, Delay: true, Listing: true,
			Enumeration: true},
		Virtual: true,
		New: func(testing.TB) Namespace {
			if name == "a look, and then a write" {
				store := new(lookThenWrite)
				return Namespace{Open: func() driver.Store { return store }}
			}
			m := &mutant{Store: memlock.New()}
			ns := Namespace{
				Open:      func() driver.Store { return m },
				LoseData:  func() { *m.Store = memlock.Store{} },
				StepClock: steppable(m.Store),
			}
			switch name {
			case "a mutex kept as a semaphore of one slot":
				oneKind(m)
			case "fences that count from one":
				var mu sync.Mutex
				var last driver.Fence
				m.grant(func(g *driver.Grant) {
					mu.Lock()
					defer mu.Unlock()
					last++
					g.Fence = last
				})
				ns.LoseData = func() { *m.Store, last = memlock.Store{}, 0 }
			default:
				mutate(m)
			}
			return ns
		},
	}.withDefaults()
}

// steppable gives a store a clock that can be stepped.
func steppable(store *memlock.Store) func(time.Duration) time.Duration {
	ahead := time.Duration(0)
	store.Clock = func() time.Time { return time.Now().Add(ahead) }
	return func(by time.Duration) time.Duration {
		ahead += by
		return ahead
	}
}

// A suite that passes every store proves nothing, so each mistake must be caught by the promises
// that it breaks.
func TestMutantsAreCaught(t *testing.T) {
	for _, broken := range mutants {
		t.Run(broken.name, func(t *testing.T) {
			h := brokenHarness(broken.name, broken.mutate)
			for _, want := range broken.caught {
				i := slices.IndexFunc(promises, func(p promise) bool { return strings.HasPrefix(p.name, want) })
				if i < 0 {
					t.Fatalf("no promise begins with %q", want)
				}
				var c *check
				synctest.Test(t, func(t *testing.T) { c = h.try(t, promises[i]) })
				if len(c.broken) == 0 {
					t.Errorf("%q was kept", promises[i].name)
				} else {
					t.Logf("%s: %s", promises[i].name, c.broken[0])
				}
			}
		})
	}
}

// A store that claims fewer features is tested for fewer, and it must not provide the others.
func TestFeatures(t *testing.T) {
	modest := func(change func(*mutant)) Harness {
		h := brokenHarness("", func(m *mutant) {
			if change != nil {
				change(m)
			}
		})
		h.Features = Features{}
		return h
	}
	run := func(h Harness, name string) *check {
		var c *check
		for _, p := range promises {
			if p.name == name {
				synctest.Test(t, func(t *testing.T) { c = h.try(t, p) })
			}
		}
		return c
	}
	if c := run(modest(nil), "mutex/one holder"); len(c.broken) == 0 {
		t.Error("a store gives fences without stating it: not caught")
	}
	fenceless := func(change func(*driver.Grant)) func(*mutant) {
		return func(m *mutant) {
			m.grant(func(g *driver.Grant) {
				g.Fence = 0
				change(g)
			})
		}
	}
	if c := run(modest(fenceless(func(g *driver.Grant) {
		g.Info.SuccessAge = time.Second
	})), "mutex/one holder"); len(c.broken) == 0 {
		t.Error("a store tells of successes without stating it: not caught")
	}
	if c := run(modest(fenceless(func(g *driver.Grant) {
		g.PreviousExpired = true
	})), "mutex/one holder"); len(c.broken) == 0 {
		t.Error("a store reports expired leases without stating it: not caught")
	}
	if c := run(modest(nil), "list/shows who holds what"); len(c.broken) == 0 {
		t.Error("a store lists without stating it: not caught")
	}
	if c := run(modest(func(m *mutant) {
		m.grant(func(g *driver.Grant) { g.Fence = 0 })
	}), "mutex/one holder"); len(c.broken) > 0 {
		t.Errorf("a store without fences that says so: %v", c.broken)
	}
	for _, name := range []string{"tick/at most Max starts", "fence/grows over release and expiry",
		"N/info of the other number", "cost/one round trip per call", "success/told to all who ask",
		"previous expired/each slot for itself"} {
		if c := run(modest(nil), name); c.skipped == "" {
			t.Errorf("%q was tested though the store does not state it", name)
		}
	}

	short := brokenHarness("", func(*mutant) {})
	short.LongestValue = 1000
	if c := run(short, "value/kept as given"); len(c.broken) == 0 {
		t.Error("a store keeps a longer value than it states: not caught")
	}

	counting := modest(nil)
	counting.Features = Features{Fence: true, AtomicTick: true, Holders: true, OneRoundTrip: true}
	if c := run(counting, "cost/one round trip per call"); len(c.broken) == 0 {
		t.Error("OneRoundTrip without a counter: not caught")
	}
	for _, perSlot := range []bool{false, true} {
		n := int64(0)
		counting.New = func(testing.TB) Namespace {
			m := &mutant{Store: memlock.New()}
			count := func(grants []driver.Grant) {
				n++
				if perSlot {
					n += int64(len(grants)) - 1
				}
			}
			m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
				count(make([]driver.Grant, max(1, req.Slots)))
				return m.Store.TryAcquire(ctx, req)
			}
			m.extend = func(ctx context.Context, ttl time.Duration, grants []driver.Grant) ([]driver.Result, error) {
				count(grants)
				return m.Store.Extend(ctx, ttl, grants...)
			}
			m.release = func(ctx context.Context, grants []driver.Grant) ([]driver.Result, error) {
				count(grants)
				return m.Store.Release(ctx, grants...)
			}
			return Namespace{Open: func() driver.Store { return m }, RoundTrips: func() int64 { return n }}
		}
		if c := run(counting, "cost/one round trip per call"); len(c.broken) > 0 != perSlot {
			t.Errorf("a round trip per slot: %v; found %v", perSlot, c.broken)
		}
	}
}

// The names that the suite uses must be valid and distinct.
func TestNamesAreNames(t *testing.T) {
	seen := make(map[string]bool)
	for _, name := range trickyNames() {
		if err := driver.CheckName(name); err != nil {
			t.Error(err)
		}
		if seen[name] {
			t.Errorf("%q is there twice", name)
		}
		seen[name] = true
	}
	for _, name := range badNames() {
		if driver.CheckName(name) == nil {
			t.Errorf("%q is a good name", name)
		}
	}
}
