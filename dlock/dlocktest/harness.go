package dlocktest

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// Features are the optional promises of a store. Run tests the stated ones. Where possible, it also
// tests that the store does not claim the others.
type Features struct {
	// Fence: every grant has a fence, which grows per slot. If not stated, Grant.Fence must be 0.
	Fence bool
	// AtomicTick: the store takes a tick and a slot in one step, or neither of them. If not stated,
	// ticks are not tested.
	AtomicTick bool
	// Holders: a refusal describes the lease that ends first: its holder, how long it has been
	// held, and when it ends. If not stated, a refusal must not name a holder.
	Holders bool
	// Info: answers state the number of slots that other hosts declared.
	Info bool
	// LastSuccess: answers to TryAcquire state the time since a grant of the name was last released
	// as Succeeded. If not stated, Info.SuccessAge must be 0.
	LastSuccess bool
	// PreviousExpired: a grant says whether its slot's previous lease expired without a release. If
	// not stated, it must never say so.
	PreviousExpired bool
	// Control: the store is a driver.Controller. Requires Fence. If not stated, the store must not
	// be one.
	Control bool
	// Shared: the store is a driver.SharedLimiter that can take all names of a namespace in one
	// step. Requires Fence. If not stated, the store must not be one and must not grant a request
	// with Shared.
	Shared bool
	// Rate: the store is a driver.RateLimiter. Requires Shared. If not stated, CheckRate must be
	// missing or return an error, and the store must not grant a request with SemaphoreSpec.Rate.
	Rate bool
	// Delay: the store is a driver.Delayer. If not stated, CheckDelay must be missing or return an
	// error, and the store must not grant a request with Tick.Delay.
	Delay bool
	// Listing: the store is a driver.Lister. If not stated, it must not be one.
	Listing bool
	// Enumeration: the store is a driver.Enumerator for all names of a namespace and knows when
	// leases were renewed. Requires Fence. If not stated, Enumerate must be missing or return an
	// error.
	Enumeration bool
	// OneRoundTrip: each call takes one round trip, for any number of slots and for up to 500
	// grants. Requires Namespace.RoundTrips.
	OneRoundTrip bool
}

// A Harness tells Run how to test a store.
type Harness struct {
	Features Features

	// New returns a new, empty namespace. Run calls it for every test, and concurrently unless
	// Virtual is set. Close resources in a t.Cleanup.
	New func(t testing.TB) Namespace

	// Only is a prefix of test names. Run skips all other tests, for example if a special setup
	// serves only some tests. Default "": all tests.
	Only string

	// Virtual runs every test in a testing/synctest bubble. Use it for a store whose clock is
	// time.Now and that does no I/O. Otherwise tests wait in real time and run in parallel. Default
	// false.
	Virtual bool

	// TTL is the length of the leases that tests wait for. Default 300 ms.
	TTL time.Duration

	// Slack is how much longer than its TTL a lease may last because of a coarse store clock. A
	// lease must never end early. Default 50 ms; 0 if Virtual is set.
	Slack time.Duration

	// LongestValue is the longest driver.Value.Text that the store keeps; it must refuse what is
	// much longer with an error that matches driver.ErrFault. Default driver.MaxValueLen.
	LongestValue int

	// Seed repeats the random operations of a failure, which prints its seed. Default random.
	Seed uint64
}

// A Namespace is a part of the store that no other test uses.
type Namespace struct {
	// Open returns another client ("host") of this namespace. It may return the same one again.
	Open func() driver.Store

	// LoseData makes the store lose all data of this namespace, as FLUSHALL or a dropped table
	// would. Default nil: fences after a loss of data are not tested.
	LoseData func()

	// StepClock sets the store's clock forward, or back if by is negative. It returns how far the
	// clock is now ahead of time.Now. If the clock cannot be set, StepClock may instead move all
	// recorded instants, including the ends of leases, the other way, which is equivalent, and
	// return 0. Default nil: clocks that were wrong are not tested.
	StepClock func(by time.Duration) (ahead time.Duration)

	// RoundTrips counts the round trips of this namespace's clients on the wire. OneRoundTrip
	// requires it.
	RoundTrips func() int64
}

// Run tests whether a store keeps its promises, with one subtest per promise.
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

// tryInTime tests a promise up to three times. A store with a MaxTTL limits the length of leases,
// and a busy machine may take longer than that. Leases that ended meanwhile say nothing about the
// store.
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
	given func(Features) string // optional; returns why a store with these features is exempt, or "" if it is not
	show  func(*check)
}

// promises are all promises in the order of their tests.
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
