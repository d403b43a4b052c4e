package dlocktest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// delays test ticks that are due at a fixed delay after the end of the last lease.
var delays = []promise{
	{name: "delay/refused by a store that cannot", show: delayUnsupported},
	{name: "delay/counts from the release", given: needsDelay, show: delayAfterRelease},
	{name: "delay/counts from the expiry", given: needsDelay, show: delayAfterExpiry},
	{name: "delay/any lease of the name counts", given: needsDelay, show: delayAfterAnyLease},
	{name: "delay/instants play no part", given: needsDelay, show: delayWithoutInstants},
	{name: "delay/token asked again is the same grant", given: needsDelay, show: delayAskedAgain},
	{name: "delay/limits and pauses", given: needsDelay, show: delayUnderOverrides},
	{name: "delay/many hosts at once", given: needsDelay, show: delayRace},
}

func needsDelay(f Features) string {
	if !f.Delay {
		return "the store does not state Delay"
	}
	return ""
}

// delayed returns a request that is due when the delay has passed since the name's last lease
// ended.
func (c *check) delayed(name string, delay time.Duration) driver.Request {
	req := c.request(name, 1)
	req.Tick = &driver.Tick{Delay: delay}
	return req
}

// delay returns a delay that is short enough to wait for.
func (c *check) delay() time.Duration { return c.h.TTL }

// awaitDelay repeats the request until the store grants it. The grant must not come before
// earliest.
func (h *host) awaitDelay(what string, req driver.Request, earliest time.Time) driver.Grant {
	c := h.c
	tooLate := time.Now().Add(callTimeout)
	for ask := time.Now(); ; {
		req.Token = c.request(req.Name, 1).Token
		a := h.try(req)
		no, _ := errors.AsType[*driver.NotAcquiredError](a.err)
		switch {
		case a.err == nil && a.got.Before(earliest):
			c.fatalf("%s: granted at least %v too early", what, earliest.Sub(a.got))
		case a.err == nil:
			return a.grant
		case no == nil || no.Reason != driver.ReasonTickEarly && no.Reason != driver.ReasonFull:
			c.fatalf("%s: %v: must be granted, or refused as %q or %q", what, a.err, driver.ReasonTickEarly,
				driver.ReasonFull)
		case no.Reason == driver.ReasonTickEarly && (no.ExpiresIn <= 0 || no.ExpiresIn > req.Tick.Delay+c.h.Slack):
			c.fatalf("%s: the delay of %v is over in %v: must be more than 0, and no more than the delay", what,
				req.Tick.Delay, no.ExpiresIn)
		case a.sent.After(tooLate):
			c.fatalf("%s: %v: must be granted long ago", what, a.err)
		}
		ask = ask.Add(c.step())
		until(ask)
	}
}

// delayUnsupported catches a store that ignores a delay and grants immediately.
func delayUnsupported(c *check) {
	h := c.host()
	delayer := h.caps().Delayer
	if c.h.Features.Delay {
		if delayer == nil {
			c.fatalf("the store states Delay, and is no driver.Delayer")
		}
		if err := delayer.CheckDelay(driver.MaxDelay); err != nil {
			c.errorf("CheckDelay: %v: must be nil", err)
		}
		for what, change := range map[string]func(*driver.Request){
			"a mutex":           func(req *driver.Request) { req.Slots = 0 },
			"two slots":         func(req *driver.Request) { req.Slots = 2 },
			"a negative delay":  func(req *driver.Request) { req.Tick.Delay = -time.Second },
			"too long a delay":  func(req *driver.Request) { req.Tick.Delay = driver.MaxDelay + time.Second },
			"a nanosecond only": func(req *driver.Request) { req.Tick.Delay = 1 },
		} {
			req := c.delayed("x", time.Minute)
			change(&req)
			if a := h.try(req); a.err == nil || errors.Is(a.err, driver.ErrNotAcquired) {
				c.errorf("a request with %s: %v: must be an error, and no refusal", what, a.err)
			}
		}
		h.mustAcquire(c.delayed("x", driver.MaxDelay))
		return
	}
	if delayer != nil && delayer.CheckDelay(time.Minute) == nil {
		c.errorf("the store does not state Delay, and is a driver.Delayer that finds nothing wrong")
	}
	if a := h.try(c.delayed("x", time.Minute)); a.err == nil || errors.Is(a.err, driver.ErrNotAcquired) {
		c.errorf("a request with a Delay, which the store does not state: %v: must be an error, and no refusal", a.err)
	}
}

// delayAfterRelease catches a store that counts from the start of a lease or does not count at all.
func delayAfterRelease(c *check) {
	a, b := c.host(), c.host()
	g := a.mustAcquire(c.delayed("x", time.Hour)).grant // no lease has ended before
	b.mustRefuse(c.delayed("x", time.Microsecond), driver.ReasonFull)
	for i := range 2 {
		time.Sleep(c.delay() / 2) // the run takes some time
		g.Succeeded = i == 0
		released := time.Now()
		c.want("release", a.release(g), driver.GrantOK)
		for _, h := range []*host{a, b} {
			no := h.mustRefuse(c.delayed("x", time.Hour), driver.ReasonTickEarly)
			if no.ExpiresIn > time.Hour+c.h.Slack || no.ExpiresIn < time.Hour-callTimeout {
				c.errorf("a delay of 1h is over in %v just after it began", no.ExpiresIn)
			}
		}
		g = b.awaitDelay("after a release", c.delayed("x", c.delay()), released.Add(c.delay()))
	}
	b.release(g)
}

// delayAfterExpiry catches a store that forgets a lease that was never released because its host
// crashed.
func delayAfterExpiry(c *check) {
	a, b := c.host(), c.host()
	req := c.delayed("x", time.Hour)
	req.TTL = c.h.TTL
	held := a.mustAcquire(req)
	b.awaitDelay("after an expiry", c.delayed("x", c.delay()), held.heldUntil().Add(c.delay()))
	// The same holds for a long delay that is first requested long after the lease has ended.
	req = c.delayed("y", time.Hour)
	req.TTL = c.h.TTL
	until(a.mustAcquire(req).endedBy(c))
	b.mustRefuse(c.delayed("y", time.Hour), driver.ReasonTickEarly)
	b.mustRefuse(c.delayed("y", time.Hour), driver.ReasonTickEarly) // the first refusal has not changed this
}

// delayAfterAnyLease catches a store that considers only one slot or only leases with a delay.
func delayAfterAnyLease(c *check) {
	a, b := c.host(), c.host()
	for _, slots := range []int{1, 3} {
		name := nameOf("x", slots)
		var grants []driver.Grant
		for range slots {
			grants = append(grants, a.mustAcquire(c.request(name, slots)).grant)
		}
		for len(grants) > 0 { // higher slots, from a host that declares more, count as well
			b.mustRefuse(c.delayed(name, time.Microsecond), driver.ReasonFull)
			c.want("release", a.release(grants[0]), driver.GrantOK)
			grants = grants[1:]
		}
		b.mustRefuse(c.delayed(name, time.Hour), driver.ReasonTickEarly)
	}
	// A lease expired in a slot that a request with a delay does not use.
	first := a.mustAcquire(c.request("y", 3)).grant
	second := a.mustAcquire(c.brief("y", 3))
	c.want("release", a.release(first), driver.GrantOK)
	b.awaitDelay("after an expiry in another slot", c.delayed("y", c.delay()), second.heldUntil().Add(c.delay()))
	// A lease without a tick can be taken at any time, and its end counts.
	c.want("release", a.release(a.mustAcquire(c.request("z", 1)).grant), driver.GrantOK)
	b.mustRefuse(c.delayed("z", time.Hour), driver.ReasonTickEarly)
	g := a.mustAcquire(c.request("z", 1)).grant
	released := time.Now()
	c.want("release", a.release(g), driver.GrantOK)
	b.awaitDelay("after a lease without a tick", c.delayed("z", c.delay()), released.Add(c.delay()))
}

// delayWithoutInstants catches a store that compares the ticks of hosts whose clocks differ.
func delayWithoutInstants(c *check) {
	a := c.host()
	end := func(g driver.Grant) { c.want("release", a.release(g), driver.GrantOK) }
	if c.h.Features.AtomicTick {
		end(a.mustAcquire(c.tick("x", 1, time.Now().Add(driver.MaxTickAhead/2), 1)).grant)
	}
	for _, at := range []time.Time{{}, time.Now().Add(time.Hour), time.Now().Add(-time.Hour)} {
		req := c.delayed("x", time.Microsecond)
		req.Tick.At, req.Tick.MissedAt = at, at
		end(a.awaitDelay("at any instant", req, time.Time{}))
	}
	if c.h.Features.AtomicTick { // the store records its own time as the tick
		c.pause()
		a.mustRefuse(c.tick("x", 1, time.Now().Add(-time.Minute), 1), driver.ReasonTickLate)
		end(a.mustAcquire(c.tick("x", 1, c.later().Add(c.h.Slack), 1)).grant)
	}
}

// delayAskedAgain catches a store that refuses a repeated request after a lost reply.
func delayAskedAgain(c *check) {
	a := c.host()
	req := c.delayed("x", time.Hour)
	first := a.mustAcquire(req).grant
	if again := a.mustAcquire(req).grant; again.Slot != first.Slot || again.Fence != first.Fence {
		c.errorf("the same request got slot %d, fence %d, and then slot %d, fence %d", first.Slot, first.Fence,
			again.Slot, again.Fence)
	}
	c.want("release", a.release(byToken(req)), driver.GrantOK)
	a.mustRefuse(c.delayed("x", time.Hour), driver.ReasonTickEarly)
}

// delayUnderOverrides catches a limit that allows a second lease beside the first.
func delayUnderOverrides(c *check) {
	if !c.h.Features.Control {
		return
	}
	a, b := c.host(), c.host()
	a.limit("x", 3)
	g := a.mustAcquire(c.delayed("x", time.Hour)).grant
	other := a.mustAcquire(c.request("x", 1)).grant // as a Trigger would
	b.mustRefuse(c.delayed("x", time.Microsecond), driver.ReasonFull)
	c.want("release", a.release(g), driver.GrantOK)
	b.mustRefuse(c.delayed("x", time.Microsecond), driver.ReasonFull)
	c.want("release", a.release(other), driver.GrantOK)
	if no := b.mustRefuse(c.delayed("x", time.Hour), driver.ReasonTickEarly); no.Info.SlotLimit != 3 {
		c.errorf("the refusal tells a limit of %d: must be 3", no.Info.SlotLimit)
	}
	a.pauseFor("x", time.Hour)
	b.mustRefuse(c.delayed("x", time.Hour), driver.ReasonPaused)
	a.resume("x")
	b.release(b.awaitDelay("under a limit of 3", c.delayed("x", c.delay()), time.Time{}))
	a.limit("x", 0)
	b.mustRefuse(c.delayed("x", time.Microsecond), driver.ReasonPaused)
}

// delayRace catches a store that checks the delay and takes the slot in two steps.
func delayRace(c *check) {
	const hosts, rounds = 5, 4
	var mu sync.Mutex
	var ended time.Time // before this, the last lease was not released
	var all sync.WaitGroup
	deadline := time.Now().Add(callTimeout + rounds*2*c.delay())
	granted := 0
	for i := range hosts {
		h := c.host()
		all.Go(func() {
			for n := 0; time.Now().Before(deadline); n++ {
				mu.Lock()
				done := granted >= rounds
				mu.Unlock()
				if done {
					return
				}
				req := c.delayed("x", c.delay())
				if i == 0 && n%3 == 0 {
					req.Tick = nil // between them, take and release a lease without a delay
				}
				a := h.try(req)
				if a.err == nil {
					mu.Lock()
					if early := ended.Add(c.delay()).Sub(a.got); req.Tick != nil && !ended.IsZero() && early > 0 {
						c.errorf("granted at least %v too early", early)
					}
					if req.Tick != nil {
						granted++
					}
					ended = time.Now()
					mu.Unlock()
					h.release(a.grant)
				} else if r := reason(a.err); r != driver.ReasonTickEarly && r != driver.ReasonFull {
					c.errorf("%v: must be refused as %q or %q", a.err, driver.ReasonTickEarly, driver.ReasonFull)
					return
				}
				if i == 0 {
					time.Sleep(c.delay())
				} else {
					time.Sleep(c.step() + time.Duration(i)*time.Millisecond)
				}
			}
		})
	}
	all.Wait()
	if granted == 0 {
		c.errorf("none of %d hosts was granted anything in %s", hosts, fmt.Sprint(callTimeout))
	}
}
