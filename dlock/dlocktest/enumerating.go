package dlocktest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

var enumerating = []promise{
	{name: "enumerate/finds every lease", given: needsEnumeration, show: enumeratesAll},
	{name: "enumerate/is not pretended", show: enumeratesIfStated},
	{name: "enumerate/leases that stay are found once while others come and go", given: needsEnumeration,
		show: enumeratesWhileOthersChange},
	{name: "enumerate/shows a release for a while", given: needsEnumeration, show: enumeratesReleases},
	{name: "enumerate/tells when a lease was renewed", given: needsEnumeration, show: enumeratesRenewals},
	{name: "enumerate/sees nothing of another namespace", given: needsEnumeration, show: enumeratesItsOwn},
}

func needsEnumeration(f Features) string {
	if !f.Enumeration {
		return "the store does not state Enumeration"
	}
	return ""
}

// enumeratesIfStated catches a store that enumerates without stating the feature, which would then
// not be tested.
func enumeratesIfStated(c *check) {
	e := c.host().caps().Enumerator
	switch {
	case c.h.Features.Enumeration && e == nil:
		c.fatalf("the store states Enumeration and is no driver.Enumerator")
	case !c.h.Features.Enumeration && e != nil:
		ctx, cancel := callContext()
		defer cancel()
		if _, err := e.Enumerate(ctx, "", 1); err == nil {
			c.errorf("the store enumerates leases and does not state Enumeration")
		}
	}
}

// A place identifies a lease in an enumeration.
type place struct {
	name  string
	mutex bool
	slot  int
}

// An enumeration is the result of calling Enumerate for all pages.
type enumeration struct {
	c               *check
	leases          map[place]driver.LeaseInfo
	asked, answered time.Time
}

// enumerate reads all pages and calls between after each of them. It leaves out the lease with
// which the check waited for the store.
func (h *host) enumerate(limit int, between func()) enumeration {
	found := enumeration{c: h.c, leases: make(map[place]driver.LeaseInfo), asked: time.Now()}
	after := ""
	for pages := 0; ; pages++ {
		ctx, cancel := callContext()
		page, err := h.caps().Enumerator.Enumerate(ctx, after, limit)
		cancel()
		if err != nil {
			h.c.note(2, "a page of %d leases: %v", limit, err)
			panic(giveUp{})
		}
		perName := make(map[string]int)
		most := 0
		for _, l := range page.Leases {
			perName[l.Name]++
			most = max(most, perName[l.Name])
			at := place{l.Name, l.Mutex, l.Slot}
			if _, twice := found.leases[at]; twice {
				h.c.errorf("%+v is in the pages of %d leases twice", at, limit)
			}
			if l.Name != "warm-up" {
				found.leases[at] = l
			}
		}
		if len(page.Leases) > limit+most {
			h.c.errorf("a page of %d leases has %d, at most %d of one name", limit, len(page.Leases), most)
		}
		if page.Next == "" {
			break
		}
		if after = page.Next; pages > 100_000 {
			h.c.fatalf("100,000 pages of %d leases, and more: the last has %+v", limit, page.Leases)
		}
		between()
	}
	found.answered = time.Now()
	return found
}

func nothing() {}

// has checks that the enumeration consists of exactly these leases.
func (e enumeration) has(what string, held, released []attempt) {
	all := len(held) + len(released)
	if len(e.leases) != all {
		e.c.note(2, "%s: %d leases are found: must be %d", what, len(e.leases), all)
	}
	for i, w := range slices.Concat(held, released) {
		at := place{w.req.Name, w.req.Slots == 0, w.grant.Slot}
		l, found := e.leases[at]
		if !found {
			e.c.note(2, "%s: %+v is not found", what, at)
			continue
		}
		e.c.shown(what, l, w, e.asked, e.answered)
		if i < len(held) {
			least, most := w.heldUntil().Sub(e.answered)-e.c.h.Slack, w.got.Add(w.req.TTL).Sub(e.asked)+e.c.h.Slack
			if l.ExpiresIn < least || l.ExpiresIn > most || l.ExpiresIn <= 0 || l.ReleasedAgo != 0 {
				e.c.note(2, "%s: %+v is held: must end in %v to %v", what, l, least, most)
			}
		} else if l.ExpiresIn != 0 || l.ReleasedAgo < time.Microsecond ||
			l.ReleasedAgo > e.answered.Sub(w.got)+e.c.h.Slack {
			e.c.note(2, "%s: %+v was released, %v ago at most", what, l, e.answered.Sub(w.got))
		}
	}
}

// shown checks the fields that held and released leases have in common.
func (c *check) shown(what string, l driver.LeaseInfo, w attempt, asked, answered time.Time) {
	if l.Fence != w.grant.Fence || l.Holder != w.req.Holder {
		c.note(3, "%s: %+v: must have fence %d and the holder %v", what, l, w.grant.Fence, w.req.Holder)
	}
	least, most := asked.Sub(w.got)-c.h.Slack, answered.Sub(w.sent)+c.h.Slack
	if l.HeldFor < max(0, least) || l.HeldFor > most {
		c.note(3, "%s: %+v: HeldFor must be %v to %v", what, l, least, most)
	}
}

// enumeratesAll catches an enumeration that omits a kind of lease or changes a name.
func enumeratesAll(c *check) {
	h := c.host()
	h.enumerate(10, nothing).has("when nothing was ever granted", nil, nil)
	var held []attempt
	for _, name := range trickyNames() {
		held = append(held, h.mustAcquire(c.request(name, 0)))
		req := c.request(name, 2)
		if c.h.Features.AtomicTick {
			req.Tick = &driver.Tick{At: thisSecond(), Max: 1}
		}
		held = append(held, h.mustAcquire(req))
	}
	const slots = 60
	for range slots {
		held = append(held, h.mustAcquire(c.request("many", slots)))
	}
	if c.h.Features.Shared {
		a := h.mustAcquire(c.with(c.request("with", 1), driver.SemaphoreSpec{Name: "limit", Slots: 2}))
		shared := a
		shared.req.Name, shared.req.Slots, shared.grant = "limit", 2, a.grant.Shared[0]
		held = append(held, a, shared)
	}
	for _, limit := range []int{1, 7, 100, driver.MaxPage} {
		c.host().enumerate(limit, nothing).has(fmt.Sprintf("in pages of %d", limit), held, nil)
	}
}

// enumeratesWhileOthersChange catches a page token that is an offset or names a lease that may be
// gone later, and an order that renewals change. Such enumerations would skip held leases.
func enumeratesWhileOthersChange(c *check) {
	h := c.host()
	stay := make(map[place]bool)
	var grants []driver.Grant
	for i := range 20 {
		for _, slots := range []int{0, 1, 3} {
			g := h.mustAcquire(c.request(fmt.Sprintf("stays-%d-%d", i, slots), slots)).grant
			grants = append(grants, g)
			stay[place{g.Name, slots == 0, g.Slot}] = true
		}
	}
	var passing []driver.Grant
	for i := range 20 {
		passing = append(passing, h.mustAcquire(c.request(fmt.Sprintf("stays-%d-gone", i), i%2)).grant)
	}
	page := 0
	found := h.enumerate(3, func() {
		page++
		h.extend(c.long, grants[page%len(grants)], grants[(page+30)%len(grants)])
		if len(passing) > 0 {
			h.release(passing[0])
			passing = passing[1:]
		}
		h.mustAcquire(c.request(fmt.Sprintf("stays-%d-new-%d", page%20, page), page%2))
		if page > 200 {
			c.fatalf("200 pages of 3 leases, because one is granted after each page")
		}
	})
	for at := range found.leases {
		delete(stay, at)
	}
	for at := range stay {
		c.errorf("%+v was held all the time and is not found", at)
	}
}

// enumeratesReleases catches a release that is not shown, that hides the slot's next lease, or that
// is shown for a lease that was not released.
func enumeratesReleases(c *check) {
	h := c.host()
	mutex := h.mustAcquire(c.request("m", 0))
	again := h.mustAcquire(c.request("again", 0))
	one, two, three := h.mustAcquire(c.request("s", 3)), h.mustAcquire(c.request("s", 3)),
		h.mustAcquire(c.request("s", 3))
	time.Sleep(c.h.TTL / 10)
	c.want("release", h.release(mutex.grant, again.grant, two.grant), driver.GrantOK)
	h.enumerate(10, nothing).has("after three releases", []attempt{one, three}, []attempt{mutex, again, two})
	if l := h.caps().Lister; l != nil {
		ctx, cancel := callContext()
		defer cancel()
		if list, err := l.List(ctx, "s", 3); err != nil || len(list) != 2 {
			c.errorf("List shows %+v, %v: must be what is held, two leases", list, err)
		}
	}
	next := h.mustAcquire(c.request("s", 3))
	taken := h.mustAcquire(c.request("again", 0))
	h.enumerate(10, nothing).has("when two are granted again", []attempt{one, next, three, taken},
		[]attempt{mutex})

	// A lease that expired was not released. The slot's lease before it was released, but it is not
	// the latest any more.
	c.want("release", h.release(next.grant, taken.grant), driver.GrantOK)
	ends := []attempt{h.mustAcquire(c.brief("s", 3)), h.mustAcquire(c.brief("again", 0)),
		h.mustAcquire(c.brief("brief", 0)), h.mustAcquire(c.brief("brief", 3))}
	last := slices.MaxFunc(ends, func(a, b attempt) int { return cmp.Compare(a.got.UnixNano(), b.got.UnixNano()) })
	until(last.endedBy(c))
	h.enumerate(10, nothing).has("when four have expired", []attempt{one, three}, []attempt{mutex})

	if !c.h.Virtual {
		return // a test does not wait a minute
	}
	last = h.mustAcquire(c.request("last", 2))
	time.Sleep(driver.ReleasedFor)
	c.want("release", h.release(last.grant), driver.GrantOK)
	h.enumerate(10, nothing).has("a minute later", []attempt{one, three}, []attempt{last})
	time.Sleep(driver.ReleasedFor)
	h.enumerate(10, nothing).has("two minutes later", []attempt{one, three}, nil)
}

// enumeratesRenewals catches a HeldFor that restarts with an extension, and a RenewedAgo that does
// not restart or that is computed with another TTL than the extension's.
func enumeratesRenewals(c *check) {
	h := c.host()
	mutex, slot := h.mustAcquire(c.request("m", 0)), h.mustAcquire(c.request("s", 2))
	// These are the times of the last renewals: not before sent and not after got.
	sent := map[string]time.Time{"m": mutex.sent, "s": slot.sent}
	got := map[string]time.Time{"m": mutex.got, "s": slot.got}
	renewed := func(what string) {
		time.Sleep(max(c.h.TTL/3, 2*c.h.Slack))
		found := h.enumerate(10, nothing)
		if len(found.leases) != 2 {
			c.fatalf("%s: %d leases are found: must be 2", what, len(found.leases))
		}
		for _, w := range []attempt{mutex, slot} {
			name := w.req.Name
			l := found.leases[place{name, w.req.Slots == 0, w.grant.Slot}]
			c.shown(what, l, w, found.asked, found.answered)
			least, most := found.asked.Sub(got[name])-c.h.Slack, found.answered.Sub(sent[name])+c.h.Slack
			if l.RenewedAgo < least || l.RenewedAgo > most || l.RenewedAgo <= 0 {
				c.errorf("%s: %+v: RenewedAgo must be %v to %v", what, l, least, most)
			}
		}
	}
	extend := func(ttl time.Duration, a attempt) {
		sent[a.req.Name] = time.Now()
		c.want("extend", h.extend(ttl, a.grant), driver.GrantOK)
		got[a.req.Name] = time.Now()
	}
	renewed("granted")
	renewed("granted, and some time later")
	extend(c.long, mutex)
	extend(c.long, slot)
	renewed("extended")
	extend(c.long/2, mutex)
	extend(c.long/2, slot)
	renewed("extended by another TTL")
	extend(c.long, slot)
	renewed("extended by the first TTL again")
	extend(c.long/2, slot)
	sent["s"] = time.Now()
	if again := h.mustAcquire(slot.req); again.grant.Slot != slot.grant.Slot {
		c.fatalf("the same request was granted slot %d, and %d before", again.grant.Slot, slot.grant.Slot)
	}
	got["s"] = time.Now()
	renewed("asked again")
}

// enumeratesItsOwn catches an enumeration that returns the leases of other namespaces.
func enumeratesItsOwn(c *check) {
	h := c.host()
	own := []attempt{h.mustAcquire(c.request("a", 0)), h.mustAcquire(c.request("b", 2))}
	mine := c.ns
	c.fresh()
	other := c.host()
	other.enumerate(10, nothing).has("in another namespace", nil, nil)
	theirs := other.mustAcquire(c.request("b", 2))
	other.enumerate(10, nothing).has("in another namespace", []attempt{theirs}, nil)
	c.ns = mine
	c.host().enumerate(10, nothing).has("beside another namespace", own, nil)
}
