package dlocktest

import (
	"cmp"
	"slices"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

var listing = []promise{
	{name: "list/shows who holds what", show: lists},
}

// lists catches a list with ended leases, leases of other names, or wrong facts.
func lists(c *check) {
	h := c.host()
	lister := h.caps().Lister
	if !c.h.Features.Listing {
		if lister != nil {
			c.errorf("the store is a driver.Lister and does not state Listing")
		}
		return
	}
	if lister == nil {
		c.fatalf("the store states Listing and is no driver.Lister")
	}
	is := func(name string, slots int, want ...attempt) {
		ctx, cancel := callContext()
		defer cancel()
		asked := time.Now()
		list, err := lister.List(ctx, name, slots)
		answered := time.Now()
		if err != nil {
			c.fatalf("list of %q: %v", name, err)
		}
		slices.SortFunc(want, func(a, b attempt) int { return cmp.Compare(a.grant.Slot, b.grant.Slot) })
		if len(list) != len(want) {
			c.fatalf("list of %q with %d slots shows %d leases: must be %d: %+v", name, slots, len(list), len(want),
				list)
		}
		for i, w := range want {
			got := list[i]
			if got.Name != name || got.Mutex != (slots == 0) || got.Slot != w.grant.Slot ||
				got.Fence != w.grant.Fence || got.Holder != w.req.Holder {
				c.errorf("list of %q: %+v: must be slot %d with fence %d of %v", name, got, w.grant.Slot, w.grant.Fence,
					w.req.Holder)
			}
			c.age("list of "+name, got.HeldFor, asked.Sub(w.got), answered.Sub(w.sent))
			if c.h.Features.Enumeration && (got.RenewedAgo <= 0 || got.RenewedAgo > answered.Sub(w.sent)+c.h.Slack) ||
				got.ReleasedAgo != 0 {
				c.errorf("list of %q: %+v: must be held, and was renewed %v ago at most", name, got,
					answered.Sub(w.sent))
			}
			least, most := w.heldUntil().Sub(answered)-c.h.Slack, w.got.Add(w.req.TTL).Sub(asked)+c.h.Slack
			if got.ExpiresIn < least || got.ExpiresIn > most || got.ExpiresIn <= 0 {
				c.errorf("list of %q: slot %d ends in %v: must be %v to %v", name, got.Slot, got.ExpiresIn, least, most)
			}
		}
	}
	is("never used", 0)
	is("never used", 3)

	mutex := h.mustAcquire(c.request("x", 0))
	one, two, three := h.mustAcquire(c.request("x", 3)), h.mustAcquire(c.request("x", 3)),
		h.mustAcquire(c.request("x", 3))
	other := h.mustAcquire(c.request("xx", 3))
	time.Sleep(c.h.TTL / 10) // so that HeldFor is greater than 0
	is("x", 0, mutex)
	is("x", 3, one, two, three)
	is("xx", 3, other)
	is("xx", 0)

	c.want("release", h.release(two.grant, mutex.grant), driver.GrantOK)
	is("x", 0)
	is("x", 3, one, three)

	short := h.mustAcquire(c.brief("x", 3))
	if list, err := lister.List(c.t.Context(), "x", 3); err != nil || len(list) != 3 &&
		time.Now().Before(short.heldUntil()) {
		c.errorf("list with a short lease: %+v, %v", list, err)
	}
	until(short.endedBy(c))
	is("x", 3, one, three)
}
