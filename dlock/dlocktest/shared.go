package dlocktest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// jointly test requests that take slots of several semaphores in one step.
var jointly = []promise{
	{name: "shared/refused by a store that cannot", show: sharedUnsupported},
	{name: "shared/all in one step", given: needsShared, show: allAtOnce},
	{name: "shared/all or nothing", given: needsShared, show: allOrNothing},
	{name: "shared/its own reasons come first", given: needsShared, show: ownReasonsFirst},
	{name: "shared/token asked again is the same grant", given: needsShared, show: sharedAskedAgain},
	{name: "shared/lost reply", given: needsShared, show: sharedLostReply},
	{name: "shared/each lease ends by itself", given: needsShared, show: endsByItself},
	{name: "shared/all expire", given: needsShared, show: sharedExpires},
	{name: "shared/hosts that disagree share slots", given: needsShared, show: sharedDisagree},
	{name: "shared/overrides apply", given: needsShared, show: sharedOverrides},
	{name: "shared/hammer", given: needsShared, show: hammerShared},
	{name: "shared/crosswise", given: needsShared, show: crosswise},
}

func needsShared(f Features) string {
	if !f.Shared {
		return "the store does not state Shared"
	}
	return ""
}

// with adds further semaphores to a request.
func (c *check) with(req driver.Request, shared ...driver.SemaphoreSpec) driver.Request {
	req.Shared = shared
	return req
}

// all returns a grant and the grants of its further semaphores in the form that Extend and Release
// take.
func all(g driver.Grant) []driver.Grant {
	list := append([]driver.Grant{g}, g.Shared...)
	list[0].Shared = nil
	return list
}

// free checks how many slots of a name are free. It takes these slots and releases them.
func (h *host) free(what, name string, slots, want int) {
	grants := h.fill(name, slots)
	if len(grants) != want {
		h.c.note(2, "%s: %d of %d slots of %q are free: must be %d", what, len(grants), slots, name, want)
	}
	if len(grants) > 0 {
		h.release(grants...)
	}
}

// sharedUnsupported catches a store that takes Name and ignores Shared. Limits that several timers
// share would then be exceeded silently.
func sharedUnsupported(c *check) {
	h := c.host()
	caps := h.caps()
	req := c.with(c.request("x", 2), driver.SemaphoreSpec{Name: "limit", Slots: 1})
	if c.h.Features.Shared {
		if caps.SharedLimiter == nil {
			c.fatalf("the store states Shared, and is no driver.SharedLimiter")
		}
		if err := caps.SharedLimiter.CheckShared("x", "limit"); err != nil {
			c.errorf("CheckShared of two names of the namespace: %v: must be nil", err)
		}
		for what, shared := range map[string][]driver.SemaphoreSpec{
			"its own name":           {{Name: "x", Slots: 2}},
			"a name twice":           {{Name: "limit", Slots: 2}, {Name: "limit", Slots: 2}},
			"a mutex":                {{Name: "limit"}},
			"a negative number":      {{Name: "limit", Slots: -1}},
			"too many slots":         {{Name: "limit", Slots: driver.MaxSlots + 1}},
			"a bad name":             {{Name: "a:slot:1", Slots: 1}},
			"too many semaphores":    make([]driver.SemaphoreSpec, driver.MaxShared+1),
			"a semaphore of no name": {{Slots: 1}},
		} {
			a := h.try(c.with(c.request("x", 2), shared...))
			if a.err == nil || errors.Is(a.err, driver.ErrNotAcquired) {
				c.errorf("a request with %s: %v: must be an error, and no refusal", what, a.err)
			}
		}
		return
	}
	if caps.SharedLimiter != nil && caps.SharedLimiter.CheckShared("x", "limit") == nil {
		c.errorf("the store does not state Shared, and is a driver.SharedLimiter that finds nothing wrong")
	}
	ctx, cancel := callContext()
	defer cancel()
	if g, err := h.store.TryAcquire(ctx, req); err == nil || errors.Is(err, driver.ErrNotAcquired) {
		c.errorf("a request with Shared, which the store does not state: %+v, %v: must be an error, and no refusal", g,
			err)
	}
	h.free("after a request with Shared", "x", 2, 2)
}

// allAtOnce catches a semaphore that is not taken, extended or released with the others.
func allAtOnce(c *check) {
	a, b := c.host(), c.host()
	smtp, gpu := driver.SemaphoreSpec{Name: "smtp", Slots: 3}, driver.SemaphoreSpec{Name: "gpu", Slots: 1}
	first := a.mustAcquire(c.with(c.request("orders", 2), smtp, gpu)).grant
	second := b.mustAcquire(c.with(c.request("mails", 1), smtp)).grant
	b.free("with one lease", "orders", 2, 1)
	b.free("with two leases", "smtp", 3, 1)
	b.free("with one lease", "gpu", 1, 0)
	if first.Shared[0].Slot == second.Shared[0].Slot {
		c.errorf("slot %d of smtp was granted twice", first.Shared[0].Slot)
	}
	for _, g := range []driver.Grant{first, second} {
		c.want("extend", a.extend(c.long, all(g)...), driver.GrantOK)
	}
	c.want("release", a.release(all(first)...), driver.GrantOK)
	a.free("after a release", "orders", 2, 2)
	a.free("after a release", "smtp", 3, 2)
	a.free("after a release", "gpu", 1, 1)
	again := a.mustAcquire(c.with(c.request("orders", 2), gpu, smtp)).grant // the order does not matter
	for i, g := range []driver.Grant{first.Shared[1], first.Shared[0]} {
		if again.Shared[i].Slot == g.Slot && again.Shared[i].Fence <= g.Fence {
			c.errorf("%s slot %d: fence %d after %d", g.Name, g.Slot, again.Shared[i].Fence, g.Fence)
		}
	}
	c.want("release", b.release(append(all(again), all(second)...)...), driver.GrantOK)
	a.free("after all releases", "smtp", 3, 3)
}

// allOrNothing catches a refusal that keeps a slot, a start of the tick or a permit.
func allOrNothing(c *check) {
	h := c.host()
	one, two, three := driver.SemaphoreSpec{Name: "one", Slots: 2}, driver.SemaphoreSpec{Name: "two", Slots: 1},
		driver.SemaphoreSpec{Name: "three", Slots: 2}
	held := h.mustAcquire(c.request("two", 1))
	req := c.with(c.request("x", 2), one, two, three)
	if c.h.Features.AtomicTick {
		req.Tick = &driver.Tick{At: thisSecond(), Max: 1}
	}
	for range 3 { // each could take one more
		req.Token = c.request("x", 2).Token
		no := h.mustRefuse(req, driver.ReasonLimitFull)
		if no.Shared != two {
			c.errorf("the refusal speaks of %+v: must be %+v", no.Shared, two)
		}
		if c.h.Features.Holders &&
			(no.Holder != held.req.Holder || no.ExpiresIn <= 0 || no.ExpiresIn > c.long+c.h.Slack) {
			c.errorf("two is held by %v for another %v, the refusal says %v, %v", held.req.Holder, c.long, no.Holder,
				no.ExpiresIn)
		}
		c.want("release of what was refused", h.release(byToken(req)), driver.GrantLost)
	}
	h.free("after refusals", "x", 2, 2)
	h.free("after refusals", "one", 2, 2)
	h.free("after refusals", "three", 2, 2)
	h.release(held.grant)
	g := h.mustAcquire(req).grant // the tick can still be started
	c.want("release", h.release(all(g)...), driver.GrantOK)

	rest := h.fill("x", 2)
	h.mustRefuse(c.with(c.request("x", 2), one, two, three), driver.ReasonFull)
	for _, l := range []driver.SemaphoreSpec{one, two, three} {
		h.free("after a refusal", l.Name, l.Slots, l.Slots)
	}
	h.release(rest...)
}

// ownReasonsFirst catches a store that reports a limit as the reason although another host ran the
// tick.
func ownReasonsFirst(c *check) {
	h := c.host()
	limit := driver.SemaphoreSpec{Name: "limit", Slots: 1}
	at := thisSecond()
	if c.h.Features.AtomicTick {
		g := h.mustAcquire(c.with(c.tick("t", 2, at, 1), limit)).grant
		h.mustRefuse(c.with(c.tick("t", 2, at, 1), limit), driver.ReasonTickTaken)
		h.mustRefuse(c.with(c.tick("t", 2, at.Add(-time.Second), 1), limit), driver.ReasonTickLate)
		h.mustRefuse(c.with(c.tick("t", 2, at.Add(time.Minute), 1), limit), driver.ReasonTickAhead)
		h.mustRefuse(c.with(c.tick("t", 2, at.Add(time.Microsecond), 1), limit), driver.ReasonLimitFull)
		c.want("release", h.release(all(g)...), driver.GrantOK)
		h.mustRefuse(c.with(c.tick("t", 2, at, 1), limit), driver.ReasonTickTaken)
	}
	g := h.mustAcquire(c.with(c.request("x", 1), limit)).grant
	h.mustRefuse(c.with(c.request("x", 1), limit), driver.ReasonFull)
	c.want("release", h.release(all(g)...), driver.GrantOK)
}

// sharedAskedAgain catches a retry that takes a second permit or extends only some of the leases.
func sharedAskedAgain(c *check) {
	a, b := c.host(), c.host()
	limit, other := driver.SemaphoreSpec{Name: "limit", Slots: 3}, driver.SemaphoreSpec{Name: "other", Slots: 1}
	req := c.with(c.request("x", 1), limit, other)
	if c.h.Features.AtomicTick {
		req.Tick = &driver.Tick{At: thisSecond(), Max: 1}
	}
	same := func(first, again attempt) {
		was, is := all(first.grant), all(again.grant)
		for i := range was {
			if is[i].Slot != was[i].Slot || is[i].Fence != was[i].Fence {
				c.errorf("asked again: %q slot %d fence %d: must be slot %d fence %d, as before", was[i].Name,
					is[i].Slot, is[i].Fence, was[i].Slot, was[i].Fence)
			}
		}
	}
	first := a.mustAcquire(req)
	for _, h := range []*host{a, b} { // full, except for this token
		same(first, h.mustAcquire(req))
	}
	a.free("one token", "limit", 3, 2)
	c.want("release", b.release(all(first.grant)...), driver.GrantOK)
	c.want("second release", b.release(all(first.grant)...), driver.GrantLost)
	a.free("after the release", "limit", 3, 3)

	c.whileHeld(func(ttl time.Duration) bool {
		req := c.with(c.request("y", 1), limit, other)
		req.TTL = ttl
		brief := a.mustAcquire(req)
		req.TTL = c.long
		again := a.mustAcquire(req) // extends all of its leases
		if !again.got.Before(brief.heldUntil()) {
			c.want("release", a.release(all(again.grant)...), driver.GrantOK)
			return false
		}
		same(brief, again)
		until(brief.endedBy(c))
		c.want("extend after a TTL", b.extend(c.long, all(brief.grant)...), driver.GrantOK)
		c.want("release", b.release(all(brief.grant)...), driver.GrantOK)
		return true
	})
}

// sharedLostReply catches a grant that can be released only by a caller that knows its slots.
func sharedLostReply(c *check) {
	h := c.host()
	faulty := NewFaulty(h.store)
	req := c.with(c.request("x", 2), driver.SemaphoreSpec{Name: "limit", Slots: 2})
	faulty.InjectN(1, LostReply, OpAcquire)
	ctx, cancel := callContext()
	defer cancel()
	if _, err := faulty.TryAcquire(ctx, req); err == nil {
		c.fatalf("the reply was not lost")
	}
	h.free("after a lost reply", "limit", 2, 1)
	limit := byToken(req)
	limit.Name, limit.Slots = "limit", 2
	c.want("release by token", h.release(byToken(req), limit), driver.GrantOK)
	h.free("after the release", "x", 2, 2)
	h.free("after the release", "limit", 2, 2)
}

// endsByItself catches a store that hides the end of one of the leases.
func endsByItself(c *check) {
	h := c.host()
	limit := driver.SemaphoreSpec{Name: "limit", Slots: 2}
	g := h.mustAcquire(c.with(c.request("x", 2), limit)).grant
	c.want("release of the permit", h.release(g.Shared[0]), driver.GrantOK)
	h.free("after that", "limit", 2, 2)
	h.free("after that", "x", 2, 1)
	c.want("extend", h.extend(c.long, all(g)...), driver.GrantOK, driver.GrantLost)
	c.want("release", h.release(all(g)...), driver.GrantOK, driver.GrantLost)
	if caps := h.caps(); c.h.Features.Control && caps.Controller != nil {
		g = h.mustAcquire(c.with(c.request("x", 2), limit)).grant
		ctx, cancel := callContext()
		defer cancel()
		by := driver.Cause{By: "ana"}
		if err := caps.Controller.Revoke(ctx, "limit", g.Shared[0].Slot, g.Shared[0].Fence, by); err != nil {
			c.errorf("revoke a permit: %v", err)
		}
		results := h.extend(c.long, all(g)...)
		c.want("extend after a revocation", results, driver.GrantOK, driver.GrantLost)
		if r := results[1].RevokedBy; r == nil || *r != by {
			c.errorf("the permit was revoked by %v: must be %v", r, by)
		}
		h.release(all(g)...)
	}
}

// sharedExpires catches a lease that ends earlier or later than the others.
func sharedExpires(c *check) {
	h := c.host()
	a := h.mustAcquire(c.with(c.brief("x", 1), driver.SemaphoreSpec{Name: "limit", Slots: 1}))
	no := h.try(c.request("limit", 1))
	if no.err == nil && no.got.Before(a.heldUntil()) {
		c.errorf("the permit was granted to another before its end")
	}
	if no.err == nil {
		h.release(no.grant)
	}
	until(a.endedBy(c))
	next := h.mustAcquire(c.with(c.request("x", 1), driver.SemaphoreSpec{Name: "limit", Slots: 1})).grant
	for _, g := range all(next) {
		if c.h.Features.PreviousExpired && no.err != nil && !g.PreviousExpired {
			c.errorf("%q expired unreleased, and the next grant does not say so", g.Name)
		}
	}
	c.want("extend of what has expired", h.extend(c.long, all(a.grant)...), driver.GrantLost)
	h.release(all(next)...)
}

// sharedDisagree catches a store whose keys contain the size of a limit. Hosts that declare 3 and 5
// would together get 8 permits.
func sharedDisagree(c *check) {
	h := c.host()
	var grants []driver.Grant
	take := func(name string, size, want int) {
		n := 0
		for ; n <= want; n++ {
			a := h.try(c.with(c.request(name, 10), driver.SemaphoreSpec{Name: "limit", Slots: size}))
			if a.err != nil {
				if reason(a.err) != driver.ReasonLimitFull {
					c.errorf("a limit of %d: %v", size, a.err)
				}
				break
			}
			grants = append(grants, all(a.grant)...)
		}
		if n != want {
			c.errorf("a limit of %d gave %d more permits: must be %d", size, n, want)
		}
	}
	take("a", 3, 3)
	take("b", 5, 2)
	take("c", 2, 0)
	if c.h.Features.Info {
		no := h.mustRefuse(c.with(c.request("a", 10), driver.SemaphoreSpec{Name: "limit", Slots: 3}),
			driver.ReasonLimitFull)
		if no.SharedInfo.DeclaredSlots != 5 {
			c.errorf("the last grant declared 5, the refusal says %d", no.SharedInfo.DeclaredSlots)
		}
	}
	h.release(grants...)
	g := h.mustAcquire(c.with(c.request("a", 10), driver.SemaphoreSpec{Name: "limit", Slots: 3})).grant
	if c.h.Features.Info && g.Shared[0].Info.DeclaredSlots != 5 {
		c.errorf("the last grant declared 5, the next one says %d", g.Shared[0].Info.DeclaredSlots)
	}
	h.release(all(g)...)
}

// sharedOverrides catches a pause or limit that applies only to the first name of a request.
func sharedOverrides(c *check) {
	h := c.host()
	caps := h.caps()
	if !c.h.Features.Control || caps.Controller == nil {
		c.skip("the store does not state Control")
	}
	limit := driver.SemaphoreSpec{Name: "limit", Slots: 2}
	update := func(u driver.Update) {
		ctx, cancel := callContext()
		defer cancel()
		if err := caps.Controller.Update(ctx, "limit", u); err != nil {
			c.fatalf("update: %v", err)
		}
	}
	by := driver.Cause{By: "ana", Note: "quiet"}
	update(driver.Update{Pause: &driver.Pause{Cause: by, For: time.Hour}})
	no := h.mustRefuse(c.with(c.request("x", 5), limit), driver.ReasonLimitFull)
	if no.PausedBy != by || no.ExpiresIn <= 0 || no.Shared != limit {
		c.errorf("the limit was paused by %v, the refusal says %v for %v, of %+v", by, no.PausedBy, no.ExpiresIn,
			no.Shared)
	}
	h.free("after a refusal", "x", 5, 5)
	update(driver.Update{Resume: &by, Limit: &driver.LimitOverride{Cause: by, Slots: 3}})
	var grants []driver.Grant
	for range 3 {
		grants = append(grants, all(h.mustAcquire(c.with(c.request("x", 5), limit)).grant)...)
	}
	h.mustRefuse(c.with(c.request("x", 5), limit), driver.ReasonLimitFull)
	update(driver.Update{Limit: &driver.LimitOverride{Cause: by, Slots: 1}})
	h.release(grants[:4]...) // two of three are released
	h.mustRefuse(c.with(c.request("x", 5), limit), driver.ReasonLimitFull)
	h.release(grants[4:]...)
	h.release(all(h.mustAcquire(c.with(c.request("x", 5), limit)).grant)...)
	update(driver.Update{Limit: &driver.LimitOverride{Cause: by, Slots: 0}})
	if no := h.mustRefuse(c.with(c.request("x", 5), limit), driver.ReasonLimitFull); no.PausedBy != by {
		c.errorf("the limit is 0 by %v, the refusal says %v", by, no.PausedBy)
	}
	h.free("after all", "x", 5, 5)
}

// hammerShared catches every gap between a check and a grant: more permits than the limit, or two
// holders of one permit.
func hammerShared(c *check) {
	const size, timers = 3, 4
	hosts := []*host{c.host(), c.host(), c.host(), c.host(), c.host()}
	holders := make([]atomic.Int32, size)
	fences := make([]atomic.Int64, size)
	var inUse, grants, refusals atomic.Int32
	rounds, deadline := 60, time.Now().Add(500*time.Millisecond)
	var wg sync.WaitGroup
	for w := range len(hosts) * timers {
		wg.Go(func() {
			h, name := hosts[w%len(hosts)], fmt.Sprintf("timer-%d", w%timers)
			ctx, cancel := callContext()
			defer cancel()
			for round := range rounds {
				if round > 0 && !c.h.Virtual && time.Now().After(deadline) {
					return
				}
				a := h.try(c.with(c.request(name, 2), driver.SemaphoreSpec{Name: "limit", Slots: size}))
				if r := reason(a.err); r == driver.ReasonFull || r == driver.ReasonLimitFull {
					refusals.Add(1)
					runtime.Gosched()
					continue
				}
				if a.err != nil || len(a.grant.Shared) != 1 {
					c.errorf("acquire: %v, %d further grants", a.err, len(a.grant.Shared))
					return
				}
				grants.Add(1)
				permit := a.grant.Shared[0]
				slot := min(max(permit.Slot, 0), size-1)
				if n := inUse.Add(1); n > size {
					c.errorf("%d permits of %d", n, size)
				}
				if n := holders[slot].Add(1); n > 1 {
					c.errorf("slot %d of the limit has %d holders", slot, n)
				}
				if last := fences[slot].Swap(int64(permit.Fence)); int64(permit.Fence) <= last {
					c.errorf("slot %d of the limit has fence %d after %d", slot, permit.Fence, last)
				}
				for range rand.N(4) {
					runtime.Gosched()
				}
				holders[slot].Add(-1) // before the release, because the next holder may come right after it
				inUse.Add(-1)
				results, err := h.store.Release(ctx, all(a.grant)...)
				if err != nil {
					c.errorf("release: %v", err)
				}
				for _, r := range results {
					if r.Outcome != driver.GrantOK {
						c.errorf("the holder's release: %v: must be ok", r.Outcome)
					}
				}
			}
		})
	}
	wg.Wait()
	if grants.Load() == 0 {
		c.errorf("%d refusals, and not one grant", refusals.Load())
	}
	hosts[0].free("after all", "limit", size, size)
	for i := range timers {
		hosts[0].free("after all", fmt.Sprintf("timer-%d", i), 2, 2)
	}
}

// crosswise catches a store that locks names in the order of the request. Two requests could then
// wait for each other.
func crosswise(c *check) {
	hosts := []*host{c.host(), c.host(), c.host(), c.host()}
	names := []string{"a", "b", "c"}
	deadline := time.Now().Add(300 * time.Millisecond)
	var wg sync.WaitGroup
	for w, h := range hosts {
		wg.Go(func() {
			ctx, cancel := callContext()
			defer cancel()
			for round := range 40 {
				if round > 0 && !c.h.Virtual && time.Now().After(deadline) {
					return
				}
				i := (w + round) % len(names)
				req := c.request(names[i], 2)
				req.Shared = []driver.SemaphoreSpec{{Name: names[(i+1+w%2)%3], Slots: 2},
					{Name: names[(i+2-w%2)%3], Slots: 2}}
				if c.h.Features.AtomicTick {
					req.Tick = &driver.Tick{At: time.Now(), Max: 2}
				}
				a := h.try(req)
				if a.err == nil {
					_, a.err = h.store.Release(ctx, all(a.grant)...)
				}
				if a.err != nil && reason(a.err) == "" {
					c.errorf("%v", a.err)
					return
				}
			}
		})
	}
	wg.Wait()
	for _, name := range names {
		hosts[0].free("after all", name, 2, 2)
	}
}
