package dlocktest

import (
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

var abandoning = []promise{
	{name: "previous expired/a slot whose lease ended unreleased", given: needsPreviousExpired, show: expiredTold},
	{name: "previous expired/not one that was released", given: needsPreviousExpired, show: expiredNot},
	{name: "previous expired/each slot for itself", given: needsPreviousExpired, show: expiredEach},
	{name: "previous expired/by hosts that disagree on N", given: needsPreviousExpired, show: expiredBeyondN},
}

func needsPreviousExpired(f Features) string {
	if !f.PreviousExpired {
		return "the store does not state PreviousExpired"
	}
	return ""
}

// previousExpired checks whether a grant reports that its slot's previous lease expired.
func (c *check) previousExpired(what string, a attempt, want bool) {
	if a.grant.PreviousExpired != want {
		c.note(2, "%s: PreviousExpired is %t: must be %t", what, a.grant.PreviousExpired, want)
	}
}

// expiredTold catches a store that does not report the expiry of the previous lease, that accepts a
// late release, or that reports one expiry more than once.
func expiredTold(c *check) {
	a, b := c.host(), c.host()
	kinds := []int{0, 1}
	var old, late [2]attempt // all wait together for their ends
	for i, slots := range kinds {
		old[i], late[i] = a.mustAcquire(c.brief(nameOf("x", slots), slots)),
			a.mustAcquire(c.brief(nameOf("late", slots), slots))
		c.previousExpired("the first grant of a slot", old[i], false)
	}
	for i, slots := range kinds {
		next := b.waitForEnd(old[i])
		c.previousExpired("after a lease that ended", next, true)
		c.want("release of a lost grant", a.release(old[i].grant), driver.GrantLost)
		c.want("release", b.release(next.grant), driver.GrantOK)
		c.previousExpired("after a release", a.mustAcquire(c.request(nameOf("x", slots), slots)), false)
	}
	// A release that comes too late has no effect, even before another host has the slot.
	for i, slots := range kinds {
		until(late[i].endedBy(c))
		c.want("release of a grant that has ended", a.release(late[i].grant), driver.GrantLost)
		any := late[i].grant
		any.Slot = driver.AnySlot
		c.want("release of a grant that has ended, with AnySlot", a.release(any), driver.GrantLost)
		c.want("extend of a grant that has ended", a.extend(c.long, late[i].grant), driver.GrantLost)
		late[i] = b.mustAcquire(c.brief(nameOf("late", slots), slots))
		c.previousExpired("after a lease that ended and was released too late", late[i], true)
	}
	for i := range kinds {
		c.previousExpired("after a second lease that ended", a.waitForEnd(late[i]), true) // reports the second expiry
	}
}

// expiredNot catches a store that reports an expiry that did not happen: for a slot that was never
// granted, for a released slot, or for a repeated request.
func expiredNot(c *check) {
	a, b := c.host(), c.host()
	for _, slots := range []int{0, 1, 3} {
		grants := a.fillAny(nameOf("x", slots), slots)
		for _, g := range grants {
			c.previousExpired("the first grant of a slot", attempt{grant: g}, false)
		}
		grants[0].Slot = driver.AnySlot
		c.want("release with AnySlot", b.release(grants[0]), driver.GrantOK)
		again := b.mustAcquire(c.request(nameOf("x", slots), slots))
		c.previousExpired("after a release with AnySlot", again, false)
		c.want("extend", b.extend(c.long, again.grant), driver.GrantOK)
		c.previousExpired("asked again", a.mustAcquire(again.req), false)
		for _, well := range []bool{true, false} {
			again.grant.Succeeded = well
			c.want("release", b.release(again.grant), driver.GrantOK)
			again = b.mustAcquire(c.request(nameOf("x", slots), slots))
			c.previousExpired("after a release", again, false)
		}
		// Repeat a release whose reply was lost.
		c.want("release", b.release(again.grant), driver.GrantOK)
		c.want("second release", b.release(again.grant), driver.GrantLost)
		c.previousExpired("after two releases", b.mustAcquire(c.request(nameOf("x", slots), slots)), false)
	}
}

// expiredEach catches a store that records expiry per name instead of per slot, or for the mutex
// and the semaphore of a name together.
func expiredEach(c *check) {
	h := c.host()
	name, got := h.fillBriefly(2, 1)
	ended, released := got[0], got[1]
	mutex := h.mustAcquire(c.request(name, 0))
	c.want("release", h.release(released.grant, mutex.grant), driver.GrantOK)
	until(ended.endedBy(c))
	for range 2 {
		next := h.mustAcquire(c.request(name, 2))
		c.previousExpired("one of two slots", next, next.grant.Slot == ended.grant.Slot)
	}
	c.previousExpired("the mutex", h.mustAcquire(c.request(name, 0)), false)
}

// fillBriefly takes every slot of a semaphore, for the first few (brief) with short leases. It
// returns the semaphore's name.
func (h *host) fillBriefly(slots, brief int) (name string, got []attempt) {
	h.c.whileHeld(func(ttl time.Duration) bool {
		name, got = fmt.Sprint("s", ttl), nil
		taken := map[int]bool{}
		for i := range slots {
			req := h.c.request(name, slots)
			if i < brief {
				req.TTL = ttl
			}
			a := h.mustAcquire(req)
			got, taken[a.grant.Slot] = append(got, a), true
		}
		return len(taken) == slots // false if a slot was granted again because its lease had ended
	})
	return name, got
}

// expiredBeyondN catches a store that forgets an expired lease in a higher slot after a call from a
// host that declares fewer slots.
func expiredBeyondN(c *check) {
	few, many := c.host(), c.host()
	name, got := many.fillBriefly(3, 3)
	until(got[2].endedBy(c))
	first := few.mustAcquire(c.request(name, 1))
	c.previousExpired("the slot of a host with one", first, true)
	few.mustRefuse(c.request(name, 1), driver.ReasonFull)
	for range 2 {
		c.previousExpired("the slots of a host with three", many.mustAcquire(c.request(name, 3)), true)
	}
}
