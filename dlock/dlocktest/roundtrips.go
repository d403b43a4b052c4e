package dlocktest

import (
	"github.com/tickslot/tickslot/dlock/driver"
)

var roundTrips = []promise{
	{name: "cost/one round trip per call", given: needsOneRoundTrip, show: oneRoundTrip},
}

func needsOneRoundTrip(f Features) string {
	if !f.OneRoundTrip {
		return "the store does not state OneRoundTrip"
	}
	return ""
}

// oneRoundTrip catches a number of round trips that grows with slots or leases, or when all slots
// are held.
func oneRoundTrip(c *check) {
	if c.ns.RoundTrips == nil {
		c.fatalf("the store states OneRoundTrip, and the harness does not count: set Namespace.RoundTrips")
	}
	h := c.host()
	one := c.oneTrip
	// The first call of each kind may open a connection and load a script.
	for _, slots := range []int{0, 50} {
		g := h.mustAcquire(c.request("first", slots)).grant
		h.extend(c.long, g)
		h.release(g)
	}
	var grants []driver.Grant
	one("acquire of a mutex", func() { grants = append(grants, h.mustAcquire(c.request("m", 0)).grant) })
	one("acquire of a mutex that is held", func() { h.mustRefuse(c.request("m", 0), driver.ReasonFull) })
	for range 50 {
		one("acquire of one of 50 slots", func() { grants = append(grants, h.mustAcquire(c.request("s", 50)).grant) })
	}
	one("acquire when all 50 slots are held", func() { h.mustRefuse(c.request("s", 50), driver.ReasonFull) })
	if c.h.Features.AtomicTick {
		at := thisSecond()
		one("acquire with a tick", func() { grants = append(grants, h.mustAcquire(c.tick("t", 500, at, 1)).grant) })
		one("acquire with a tick that is taken", func() {
			h.mustRefuse(c.tick("t", 500, at, 1), driver.ReasonTickTaken)
		})
	}
	if c.h.Features.Shared {
		both := c.with(c.request("with", 10), driver.SemaphoreSpec{Name: "limit", Slots: 2},
			driver.SemaphoreSpec{Name: "other", Slots: 2})
		two := c.with(c.request("with", 10), both.Shared...)
		h.release(all(h.mustAcquire(both).grant)...) // loads a script
		one("acquire with two further semaphores", func() {
			grants = append(grants, all(h.mustAcquire(both).grant)...)
		})
		one("the same acquire again", func() { h.mustAcquire(both) })
		one("another acquire with them", func() { grants = append(grants, all(h.mustAcquire(two).grant)...) })
		one("acquire with semaphores that are full", func() {
			h.mustRefuse(c.with(c.request("with", 10), both.Shared...), driver.ReasonLimitFull)
		})
	}
	for len(grants) < 500 {
		grants = append(grants, h.mustAcquire(c.request("many", 500)).grant)
	}
	one("extend of 500", func() { h.extend(c.long, grants...) })
	one("release of 500", func() { h.release(grants...) })
}

// oneTrip checks that a call takes one round trip.
func (c *check) oneTrip(what string, do func()) {
	before := c.ns.RoundTrips()
	do()
	if n := c.ns.RoundTrips() - before; n != 1 {
		c.note(2, "%s took %d round trips: must be 1", what, n)
	}
}
