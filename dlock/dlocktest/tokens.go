package dlocktest

import (
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/testkit"
)

// tokens test lost replies. The caller repeats the request with the same token, or releases by the
// token.
var tokens = []promise{
	{name: "token/asked again is the same grant", show: askedAgain},
	{name: "token/asked again when full", show: askedAgainWhenFull},
	{name: "token/asked again extends", show: askedAgainExtends},
	{name: "token/lost reply", show: lostReplies},
	{name: "token/lost reply of a release", show: lostRelease},
	{name: "token/late request costs one slot for one TTL", show: arrivesLate},
	{name: "token/fresh token is a fresh attempt", show: freshToken},
}

// askedAgain catches a retry that takes a second slot.
func askedAgain(c *check) {
	a, b := c.host(), c.host()
	for _, slots := range []int{0, 2} {
		req := c.request("x", slots)
		first := a.mustAcquire(req)
		for _, h := range []*host{a, b} { // a retry may use another connection
			again := h.mustAcquire(req)
			if again.grant.Slot != first.grant.Slot || again.grant.Fence != first.grant.Fence {
				c.errorf("asked again with the same token: slot %d fence %d: must be slot %d fence %d, as before",
					again.grant.Slot, again.grant.Fence, first.grant.Slot, first.grant.Fence)
			}
		}
		if slots > 1 {
			rest := a.fill("x", slots)
			if len(rest) != slots-1 {
				c.errorf("one token was granted and asked again: %d of the other %d slots were free", len(rest),
					slots-1)
			}
			c.want("release of the rest", a.release(rest...), driver.GrantOK)
		}
		c.want("release", a.release(first.grant), driver.GrantOK)
		c.want("second release", a.release(first.grant), driver.GrantLost)
		a.fillAny("x", slots)
	}
}

// askedAgainWhenFull catches a store that looks for a free slot before it looks for the token. The
// caller's own lease would then make the name full.
func askedAgainWhenFull(c *check) {
	h := c.host()
	for _, slots := range []int{0, 1, 4} {
		name := fmt.Sprintf("x-%d", slots)
		var reqs []driver.Request
		var grants []driver.Grant
		for range max(1, slots) {
			req := c.request(name, slots)
			reqs = append(reqs, req)
			grants = append(grants, h.mustAcquire(req).grant)
		}
		for i, req := range reqs {
			if again := h.mustAcquire(req); again.grant.Slot != grants[i].Slot {
				c.errorf("asked again with the same token: slot %d, before slot %d", again.grant.Slot, grants[i].Slot)
			}
		}
		h.mustRefuse(c.request(name, slots), driver.ReasonFull)
	}
}

// askedAgainExtends catches a repeated request that does not extend the lease. The caller counts
// the TTL from the second request.
func askedAgainExtends(c *check) {
	for _, slots := range []int{0, 1} {
		req := c.brief("x", slots)
		c.keeps(req, func(h *host, a attempt) bool {
			again := h.try(a.req)
			if again.err == nil && again.got.Before(a.heldUntil()) && again.grant.Fence != a.grant.Fence {
				c.errorf("asked again with the same token: fence %d, before %d", again.grant.Fence, a.grant.Fence)
			}
			return again.err == nil && again.grant.Fence == a.grant.Fence
		})
	}
}

// lostReplies catches a grant that cannot be released after its reply was lost.
func lostReplies(c *check) {
	open := c.host()
	faulty := NewFaulty(open.store)
	h := &host{c: c, store: faulty}
	for _, slots := range []int{0, 2} {
		name := fmt.Sprintf("asked again-%d", slots)
		req := c.request(name, slots)
		faulty.InjectN(1, LostReply, OpAcquire)
		if lost := h.try(req); lost.err == nil {
			c.fatalf("the reply was to be lost")
		}
		got := h.mustAcquire(req)
		if slots == 0 {
			open.mustRefuse(c.request(name, 0), driver.ReasonFull)
		} else if rest := open.fill(name, slots); len(rest) != slots-1 {
			c.errorf("a reply was lost and the token asked again: %d of the other %d slots were free", len(rest),
				slots-1)
		}
		c.want("extend", h.extend(c.long, got.grant), driver.GrantOK)

		req = c.request("given back", slots)
		faulty.InjectN(1, LostReply, OpAcquire)
		h.try(req)
		c.want("release by token", h.release(byToken(req)), driver.GrantOK)
		open.fillAny("given back", slots)
	}
}

// lostRelease catches a repeated release that frees the next holder's slot. The caller repeats it
// because the first reply was lost.
func lostRelease(c *check) {
	a, b := c.host(), c.host()
	faulty := NewFaulty(a.store)
	a.store = faulty
	for _, slots := range []int{0, 1} {
		held := a.mustAcquire(c.request("x", slots))
		faulty.InjectN(1, LostReply, OpRelease)
		ctx, cancel := callContext()
		if _, err := a.store.Release(ctx, held.grant); err == nil {
			c.fatalf("the reply was to be lost")
		}
		cancel()
		next := b.mustAcquire(c.request("x", slots))
		c.want("release again after a lost reply", a.release(held.grant), driver.GrantLost)
		c.want("extend by the next holder", b.extend(c.long, next.grant), driver.GrantOK)
	}
}

// arrivesLate catches a store in which a request that arrives after its caller gave up takes more
// than one slot, or takes it for longer than one TTL.
func arrivesLate(c *check) {
	open := c.host()
	faulty := NewFaulty(open.store)
	req := c.brief("s", 2)
	faulty.InjectN(1, Late(time.Hour), OpAcquire)
	ctx, cancel := callContext()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = faulty.TryAcquire(ctx, req)
	}()
	if err := testkit.Poll(callTimeout, "the call is made", func() bool {
		return faulty.Calls(OpAcquire) == 1
	}); err != nil {
		c.fatalf("%v", err)
	}
	cancel()
	<-done
	c.want("release of a request that has not arrived", open.release(byToken(req)), driver.GrantLost)
	arriving := time.Now()
	faulty.Heal() // the late request arrives now
	arrived := attempt{req: req, sent: arriving, got: time.Now()}
	open.mustAcquire(c.request("s", 2)) // only one slot is taken, not two
	next := open.waitForEnd(arrived)
	ended := next.grant
	ended.Token = req.Token
	c.want("extend of the late request's grant, and of the next", open.extend(c.long, ended, next.grant),
		driver.GrantLost, driver.GrantOK)
}

// freshToken catches a store that identifies attempts by their holder.
func freshToken(c *check) {
	h := c.host()
	first := c.request("s", 3)
	h.mustAcquire(first)
	for range 2 {
		next := c.request("s", 3)
		next.Holder = first.Holder
		h.mustAcquire(next)
	}
	next := c.request("s", 3)
	next.Holder = first.Holder
	h.mustRefuse(next, driver.ReasonFull)
}
