package dlocktest

import (
	"slices"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

var exclusion = []promise{
	{name: "mutex/one holder", show: oneHolder},
	{name: "semaphore/N distinct slots", show: distinctSlots},
	{name: "semaphore/one slot", show: oneSlot},
	{name: "mutex and semaphore of one name", show: twoKinds},
	{name: "full/names the holder", given: needsHolders, show: namesHolder},
	{name: "full/names the lease that ends first", given: needsHolders, show: namesFirstToEnd},
	{name: "full/any holder is kept", given: needsHolders, show: oddHolders},
}

func needsHolders(f Features) string {
	if !f.Holders {
		return "the store does not state Holders"
	}
	return ""
}

// oneHolder catches a mutex with two holders.
func oneHolder(c *check) {
	a, b := c.host(), c.host()
	held := a.mustAcquire(c.request("m", 0))
	if held.grant.Slot != 0 {
		c.errorf("a mutex has slot %d: must be 0", held.grant.Slot)
	}
	for _, h := range []*host{a, b, c.host()} {
		h.mustRefuse(c.request("m", 0), driver.ReasonFull)
	}
	// A request with the same holder and another token is another attempt: only tokens own leases.
	twin := c.request("m", 0)
	twin.Holder = held.req.Holder
	a.mustRefuse(twin, driver.ReasonFull)
}

// distinctSlots catches a store that grants a slot twice, grants too many or too few slots, or
// grants one out of range.
func distinctSlots(c *check) {
	for _, n := range []int{1, 2, 7, 40} {
		hosts := []*host{c.host(), c.host(), c.host()}
		name := "s" + string(rune('a'+n%26))
		var slots []int
		for i := range n {
			slots = append(slots, hosts[i%3].mustAcquire(c.request(name, n)).grant.Slot)
		}
		slices.Sort(slots)
		for i, slot := range slots {
			if i != slot {
				c.fatalf("the slots of %d grants are %v: must be 0 to %d, each once", n, slots, n-1)
			}
		}
		for _, h := range hosts {
			h.mustRefuse(c.request(name, n), driver.ReasonFull)
		}
	}
}

// oneSlot catches a semaphore with one slot that is treated as a mutex or as having several slots.
func oneSlot(c *check) {
	h := c.host()
	first := h.mustAcquire(c.request("s", 1))
	h.mustRefuse(c.request("s", 1), driver.ReasonFull)
	c.want("release", h.release(first.grant), driver.GrantOK)
	h.mustAcquire(c.request("s", 1))
}

// twoKinds catches a store that keeps a mutex and a semaphore of the same name in one place, or
// confuses them in an extend or release.
func twoKinds(c *check) {
	h := c.host()
	mutex := h.mustAcquire(c.request("x", 0))
	sem := []driver.Grant{
		h.mustAcquire(c.request("x", 2)).grant,
		h.mustAcquire(c.request("x", 2)).grant,
	}
	h.mustRefuse(c.request("x", 0), driver.ReasonFull)
	h.mustRefuse(c.request("x", 2), driver.ReasonFull)
	c.want("extend of both kinds", h.extend(c.long, mutex.grant, sem[0], sem[1]), driver.GrantOK)

	c.want("release of the mutex", h.release(mutex.grant), driver.GrantOK)
	h.mustRefuse(c.request("x", 2), driver.ReasonFull)
	h.mustAcquire(c.request("x", 0))

	c.want("release of the semaphore", h.release(sem...), driver.GrantOK)
	h.mustRefuse(c.request("x", 0), driver.ReasonFull)
	h.mustAcquire(c.request("x", 2))
}

// namesHolder catches a refusal that does not name the holder or states a wrong HeldFor.
func namesHolder(c *check) {
	a, b := c.host(), c.host()
	for _, slots := range []int{0, 1} {
		req := c.request("m", slots)
		req.Holder = driver.Holder{Host: "worker-7.example.org", PID: 4711, ID: "k3x9"}
		held := a.mustAcquire(req)
		check := func() {
			asked := time.Now()
			no := b.mustRefuse(c.request("m", slots), driver.ReasonFull)
			answered := time.Now()
			if no.Holder != req.Holder {
				c.errorf("holder %+v: must be %+v", no.Holder, req.Holder)
			}
			c.age("Full", no.HeldFor, asked.Sub(held.got), answered.Sub(held.sent))
			if no.ExpiresIn <= 0 || no.ExpiresIn > req.TTL {
				c.errorf("ExpiresIn %v: must be above 0 and at most the TTL, %v", no.ExpiresIn, req.TTL)
			}
		}
		check()
		time.Sleep(c.h.TTL / 3)
		check()
		// An extension does not restart HeldFor, which counts from the grant.
		c.want("extend", a.extend(c.long, held.grant), driver.GrantOK)
		check()
	}
}

// age checks a duration against its possible range. The store's clock may be coarse.
func (c *check) age(what string, got, least, most time.Duration) {
	if got < max(0, least-c.h.Slack) || got > most+c.h.Slack {
		c.note(2, "%s: HeldFor %v: must be %v to %v", what, got, least, most)
	}
}

// namesFirstToEnd catches a refusal that names another holder than the one whose lease ends first,
// which is the one to wait for. It also catches one in a slot that the request cannot get.
func namesFirstToEnd(c *check) {
	h := c.host()
	var first driver.Request
	for i := range 3 {
		req := c.request("s", 3)
		if i == 1 {
			req.TTL /= 2
			first = req
		}
		h.mustAcquire(req)
	}
	no := h.mustRefuse(c.request("s", 3), driver.ReasonFull)
	if no.Holder != first.Holder || no.ExpiresIn > first.TTL {
		c.errorf("the refusal names %v, who ends in %v: must name %v, whose lease of %v ends first", no.Holder,
			no.ExpiresIn, first.Holder, first.TTL)
	}
	held := h.endingFromTheTop("t")
	if no := h.mustRefuse(c.request("t", 2), driver.ReasonFull); no.Holder != held[1].req.Holder {
		c.errorf("with 2 slots, the refusal names %v: must name %v, who has slot 1", no.Holder, held[1].req.Holder)
	}
}

// endingFromTheTop takes three slots whose leases end in descending order of slot. It returns the
// attempts by slot.
func (h *host) endingFromTheTop(name string) map[int]attempt {
	held := make(map[int]attempt)
	for range 3 {
		a := h.mustAcquire(h.c.request(name, 3))
		held[a.grant.Slot] = a
		h.c.want("extend", h.extend(h.c.long*time.Duration(4-a.grant.Slot)/4, a.grant), driver.GrantOK)
	}
	return held
}

// oddHolders catches a store that joins the parts of a holder with separators or fails on an
// unexpected holder.
func oddHolders(c *check) {
	a, b := c.host(), c.host()
	for i, holder := range []driver.Holder{
		{Host: `we"ird' host:with|all;{sorts},of*things?\%s`, PID: 1, ID: `i"d:7`},
		{Host: "höst-世界-😀", PID: 1 << 22, ID: "ø"},
		{Host: "only-a-host"},
		{Host: "a.very.long." + string(make253()), PID: 1, ID: "x"},
		{},
	} {
		req := c.request("m"+string(rune('0'+i)), 0)
		req.Holder = holder
		a.mustAcquire(req)
		no := b.mustRefuse(c.request(req.Name, 0), driver.ReasonFull)
		if no.Holder != holder {
			c.errorf("holder %+v: must be %+v", no.Holder, holder)
		}
	}
}

// make253 returns the rest of a host name of 253 bytes, the maximum in DNS.
func make253() []byte { return slices.Repeat([]byte{'h'}, 253-len("a.very.long.")) }
