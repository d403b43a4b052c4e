package dlocktest

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// Features are the optional promises of a store. Run tests those that are stated. Where it can, it
// also tests that the store does not claim to keep the others.
type Features struct {
	// Fence: every grant has a fence, which grows per slot. If not stated, Grant.Fence must be 0.
	Fence bool
	// AtomicTick: a tick and a slot are taken in one step, neither without the other. If not
	// stated, ticks are not tested.
	AtomicTick bool
	// Holders: a refusal names the holder of the lease that ends first, how long it has held it,
	// and when the lease ends. If not stated, it must name none.
	Holders bool
	// Info: answers have the number of slots that others declared.
	Info bool
	// LastSuccess: answers to TryAcquire, grants and refusals, have the time since a grant of the
	// name was last released as Succeeded. If not stated, Info.SuccessAge must be 0.
	LastSuccess bool
	// PreviousExpired: a grant says whether the previous lease of its slot expired without being
	// released. If not stated, it must never say so.
	PreviousExpired bool
	// Control: the store is a driver.Controller. It needs Fence. If not stated, the store must not
	// be one.
	Control bool
	// Shared: the store is a driver.SharedLimiter, and all names of a namespace can be taken in one
	// step. It needs Fence. If not stated, the store must not be one, and must not grant a request
	// with Shared.
	Shared bool
	// Rate: the store is a driver.RateLimiter. It needs Shared. If not stated, it must not be one
	// that finds nothing wrong, and must not grant a request with SemaphoreSpec.Rate.
	Rate bool
	// Delay: the store is a driver.Delayer. If not stated, it must not be one that finds nothing
	// wrong, and must not grant a request with Tick.Delay.
	Delay bool
	// Listing: the store is a driver.Lister. If not stated, it must not be one.
	Listing bool
	// Enumeration: the store is a driver.Enumerator, of all names of a namespace, and knows when
	// leases were renewed. It needs Fence. If not stated, it must not be one that returns pages.
	Enumeration bool
	// OneRoundTrip: each call takes one round trip, whatever the number of slots, or of grants up
	// to 500. It needs Namespace.RoundTrips.
	OneRoundTrip bool
}

// A Harness tells Run how to reach a store.
type Harness struct {
	Features Features

	// New returns a fresh, empty namespace. It is called for every test, concurrently unless
	// Virtual is set; close what needs closing in a t.Cleanup.
	New func(t testing.TB) Namespace

	// Only is how the names of the tests begin that Run runs, for a set-up that only they need.
	// Default "": all tests.
	Only string

	// Virtual runs every test in a testing/synctest bubble, for a store whose clock is time.Now and
	// that does no I/O. Otherwise tests wait in real time and run in parallel. Default false.
	Virtual bool

	// TTL is the length of the leases that tests wait for. Default 300 ms.
	TTL time.Duration

	// Slack is how much longer than its TTL a lease may last, because the store's clock is coarse.
	// A lease that ends too early gets no slack. Default 50 ms; 0 if Virtual is set.
	Slack time.Duration

	// LongestValue is the longest driver.Value.Text that the store keeps; it must refuse what is
	// much longer with an error that matches driver.ErrFault. Default driver.MaxValueLen.
	LongestValue int

	// Seed repeats the random operations of a failure, which prints its seed. Default random.
	Seed uint64
}

// A Namespace is a part of the store that no other test uses.
type Namespace struct {
	// Open returns one more client ("host") of this namespace. It may return the same one again.
	Open func() driver.Store

	// LoseData makes the store forget everything in this namespace, as FLUSHALL or a dropped table
	// would. Default nil: fences after a loss of data are not tested.
	LoseData func()

	// StepClock sets the clock of the store forward, or back if by is negative, and returns how far
	// it is now ahead of time.Now. If a store's clock cannot be set, its test may instead move each
	// instant that was noted the other way, including the ends of leases, which is equivalent, and
	// return 0. Default nil: the suite does not test what a store believes after its clock was
	// wrong.
	StepClock func(by time.Duration) (ahead time.Duration)

	// RoundTrips counts the round trips of this namespace's clients on the wire. Required for
	// Features.OneRoundTrip.
	RoundTrips func() int64
}

// Run tests that a store keeps its promises, with one subtest per promise.
func Run(t *testing.T, h Harness) {
	h = h.withDefaults()
	for _, p := range promises {
		if !strings.HasPrefix(p.name, h.Only) {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			var c *check
			if h.Virtual {
				synctest.Test(t, func(t *testing.T) { c = h.try(t, p) })
			} else {
				t.Parallel()
				c = h.tryInTime(t, p)
			}
			for _, broken := range c.broken {
				t.Error(broken)
			}
			if c.skipped != "" && !t.Failed() {
				t.Skip(c.skipped)
			}
		})
	}
}

func (h Harness) withDefaults() Harness {
	if h.TTL == 0 {
		h.TTL = 300 * time.Millisecond
	}
	if h.Slack == 0 && !h.Virtual {
		h.Slack = 50 * time.Millisecond
	}
	if h.LongestValue == 0 {
		h.LongestValue = driver.MaxValueLen
	}
	return h
}

// tryInTime tries again, twice at most, if a busy machine took longer than the leases last that a
// store with a MaxTTL allows: leases that have ended say nothing about the store.
func (h Harness) tryInTime(t testing.TB, p promise) *check {
	for tries := 1; ; tries++ {
		began := time.Now()
		c := h.try(t, p)
		took := time.Since(began)
		if len(c.broken) == 0 || c.long == 0 || took < c.long || tries == 3 {
			return c
		}
		t.Logf("it took %v, and leases last at most %v: %s", took, c.long, c.broken[0])
	}
}

// try tests one promise of a store, and returns its findings.
func (h Harness) try(t testing.TB, p promise) (c *check) {
	c = &check{t: t, h: h}
	defer func() {
		if e := recover(); e != nil {
			if _, ok := e.(giveUp); !ok {
				panic(e)
			}
		}
	}()
	if p.given != nil {
		if why := p.given(h.Features); why != "" {
			c.skipped = why
			return c
		}
	}
	c.fresh()
	p.show(c)
	return c
}

// A promise is one test of the suite.
type promise struct {
	name  string
	given func(Features) string // nil, or why a store with these features need not keep it; "" if it must
	show  func(*check)
}

// promises are all promises, in the order in which they are tested.
var promises = join(
	exclusion,
	slotNumbers,
	releasing,
	extending,
	expiring,
	tokens,
	names,
	ticks,
	fences,
	batches,
	requests,
	listing,
	enumerating,
	successes,
	abandoning,
	controlling,
	keeping,
	jointly,
	rates,
	delays,
	missing,
	clocks,
	roundTrips,
	hammering,
	randomly,
)

func join(groups ...[]promise) []promise {
	var all []promise
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}
