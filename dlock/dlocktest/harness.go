package dlocktest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// Features are what a store states about itself. What it states is tested; of what it does not
// state it is tested, where that can be seen, that it does not pretend to have it.
type Features struct {
	// Fence: every grant has a fence that grows per slot. Not stated: Grant.Fence is always 0.
	Fence bool
	// AtomicTick: a tick and a slot are taken in one step, neither without the other. Not stated:
	// limits per tick are not tested at all.
	AtomicTick bool
	// Holders: a refusal names who holds the lease that ends first, since when, and when it ends.
	// Not stated: it says nothing of them.
	Holders bool
	// Info: answers tell the number of slots that others declared.
	Info bool
	// LastSuccess: answers to TryAcquire, grants and refusals, tell how long ago a grant of the
	// name was last released as Succeeded. Not stated: Info.SinceSuccess is always 0.
	LastSuccess bool
	// PreviousExpired: a grant tells that whoever had its slot before let the lease end unreleased.
	// Not stated: it never says so.
	PreviousExpired bool
	// Control: the store is a dlock.Controller, needs Fence. Not stated: it is none.
	Control bool
	// Listing: the store is a dlock.Lister. Not stated: it is none.
	Listing bool
	// OneRoundTrip: each call costs one round trip whatever the number of slots or grants (up to
	// 500). Needs Namespace.RoundTrips.
	OneRoundTrip bool
}

// A Harness tells Run how to reach a store.
type Harness struct {
	Features Features

	// New returns a fresh, empty namespace. It is called for every test, from several at once; what
	// needs closing is closed in a t.Cleanup.
	New func(t testing.TB) Namespace

	// Virtual runs every test in a testing/synctest bubble, for a store whose clock is time.Now and
	// that does no I/O. Without it the tests wait for real, and several run at once. Default false.
	Virtual bool

	// TTL is the length of the leases that tests wait for. Default 300 ms.
	TTL time.Duration

	// Slack is how much longer than its TTL a lease may last, because of how coarse the store's
	// clock is. There is no slack for ending too early. Default 50 ms; 0 when Virtual.
	Slack time.Duration

	// Seed makes the random operations repeat a failure, which prints its seed. Default random.
	Seed uint64
}

// A Namespace is a part of the store that nobody else uses.
type Namespace struct {
	// Open returns one more client ("host") of this namespace. It may return the same one again.
	Open func() dlock.DistributedLock

	// LoseData makes the store forget all that it keeps for this namespace, as FLUSHALL or a
	// dropped table would. Optional; without it the fences after a loss of data are not tested.
	LoseData func()

	// RoundTrips counts the round trips of this namespace's clients at the wire. Needed when
	// Features.OneRoundTrip.
	RoundTrips func() int64
}

// Run tests that a store keeps its promises: one subtest per promise.
func Run(t *testing.T, h Harness) {
	h = h.withDefaults()
	for _, p := range promises {
		t.Run(p.name, func(t *testing.T) {
			var c *check
			if h.Virtual {
				synctest.Test(t, func(t *testing.T) { c = h.try(t, p) })
			} else {
				t.Parallel()
				c = h.try(t, p)
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
	return h
}

// try lets a store show that it keeps a promise, and returns what it found.
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

// promises are all of them, in the order in which they are tested.
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
	successes,
	abandoning,
	controlling,
	missing,
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
