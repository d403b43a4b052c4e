package dlocktest

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// rates test semaphores that limit the rate of their grants.
var rates = []promise{
	{name: "rate/refused by a store that cannot", show: rateUnsupported},
	{name: "rate/counts every grant once", given: needsRate, show: countsOnce},
	{name: "rate/counts a burst", given: needsRate, show: countsBurst},
	{name: "rate/counts no refusal", given: needsRate, show: countsNoRefusal},
	{name: "rate/says when the next is allowed", given: needsRate, show: saysWhen},
	{name: "rate/few starts in no window", given: needsRate, show: attackWindows(5)},
	{name: "rate/many starts in no window", given: needsRate, show: attackWindows(150)},
	{name: "rate/alone and with slots", given: needsRate, show: rateAndSlots},
	{name: "rate/hosts that disagree count the same", given: needsRate, show: ratesDisagree},
	{name: "rate/the largest", given: needsRate, show: largestRate},
	{name: "rate/one round trip per call", given: needsRateInOneTrip, show: rateInOneTrip},
	{name: "rate/clock set back", given: needsRate, show: rateClockBack},
}

func needsRate(f Features) string {
	if !f.Rate {
		return "the store does not state Rate"
	}
	return ""
}

func needsRateInOneTrip(f Features) string { return cmp.Or(needsRate(f), needsOneRoundTrip(f)) }

// rateInOneTrip catches a store that checks the rate in a separate call.
func rateInOneTrip(c *check) {
	if c.ns.RoundTrips == nil {
		c.fatalf("the store states OneRoundTrip, and the harness does not count: set Namespace.RoundTrips")
	}
	h := c.host()
	limit := rated(3, time.Hour)
	ask := func() driver.Request { return c.with(c.request("x", 10), limit) }
	h.release(all(h.mustAcquire(ask()).grant)...) // may open a connection and load a script
	req := ask()
	c.oneTrip("acquire with a rate", func() { h.mustAcquire(req) })
	c.oneTrip("the same acquire again", func() { h.mustAcquire(req) })
	c.oneTrip("another acquire with it", func() { h.mustAcquire(ask()) })
	c.oneTrip("acquire with a rate that is reached", func() { h.mustRefuse(ask(), driver.ReasonLimitRate) })
}

// per returns a window that is short enough to wait for.
func (c *check) per() time.Duration { return max(2*c.h.TTL, driver.MinPer) }

// rated returns a semaphore with more slots than allowed starts.
func rated(rate int, per time.Duration) driver.SemaphoreSpec {
	return driver.SemaphoreSpec{Name: "limit", Slots: 1000, Rate: rate, Per: per}
}

// start requests a grant with the given limit and releases it.
func (h *host) start(limit driver.SemaphoreSpec) attempt {
	a := h.try(h.c.with(h.c.request("x", 1000), limit))
	if a.err == nil {
		h.c.want("release", h.release(all(a.grant)...), driver.GrantOK)
	}
	return a
}

// rateUnsupported catches a store that grants without checking the rate.
func rateUnsupported(c *check) {
	h := c.host()
	limiter := h.caps().RateLimiter
	if c.h.Features.Rate {
		if limiter == nil {
			c.fatalf("the store states Rate, and is no driver.RateLimiter")
		}
		if err := limiter.CheckRate(time.Minute); err != nil {
			c.errorf("CheckRate: %v: must be nil", err)
		}
		for what, l := range map[string]driver.SemaphoreSpec{
			"a negative rate":     {Rate: -1, Per: time.Minute},
			"a rate of 0":         {Per: time.Minute},
			"a rate without Per":  {Rate: 1},
			"too large a rate":    {Rate: driver.MaxRate + 1, Per: time.Minute},
			"a negative Per":      {Rate: 1, Per: -time.Minute},
			"too short a Per":     {Rate: 1, Per: driver.MinPer - 1},
			"too long a Per":      {Rate: 1, Per: driver.MaxPer + 1},
			"a negative Per only": {Per: -1},
		} {
			l.Name, l.Slots = "limit", 1
			a := h.try(c.with(c.request("x", 2), l))
			if a.err == nil || errors.Is(a.err, driver.ErrNotAcquired) {
				c.errorf("a request with %s: %v: must be an error, and no refusal", what, a.err)
			}
		}
		return
	}
	if limiter != nil && limiter.CheckRate(time.Minute) == nil {
		c.errorf("the store does not state Rate, and is a driver.RateLimiter that finds nothing wrong")
	}
	ctx, cancel := callContext()
	defer cancel()
	g, err := h.store.TryAcquire(ctx, c.with(c.request("x", 2), rated(1, time.Minute)))
	if err == nil || errors.Is(err, driver.ErrNotAcquired) {
		c.errorf("a request with a Rate, which the store does not state: %+v, %v: must be an error, and no refusal", g,
			err)
	}
}

// countsOnce catches a repeated request that counts again, a grant that does not count because its
// reply was lost, and a release that gives a start back.
func countsOnce(c *check) {
	a, b := c.host(), c.host()
	limit := rated(4, c.long)
	req := c.with(c.request("x", 10), limit)
	g := a.mustAcquire(req).grant
	for _, h := range []*host{a, b, a} {
		h.mustAcquire(req)
	}
	c.want("release", b.release(all(g)...), driver.GrantOK)
	lost := c.with(c.request("x", 10), limit)
	faulty := NewFaulty(a.store)
	faulty.InjectN(1, LostReply, OpAcquire)
	ctx, cancel := callContext()
	defer cancel()
	if _, err := faulty.TryAcquire(ctx, lost); err == nil {
		c.fatalf("the reply was not lost")
	}
	permit := byToken(lost)
	permit.Name, permit.Slots = limit.Name, limit.Slots
	c.want("release by token", b.release(byToken(lost), permit), driver.GrantOK)
	for i := range 2 { // the third and fourth start
		if s := b.start(limit); s.err != nil {
			c.errorf("start %d of 4: %v", i+3, s.err)
		}
	}
	for _, h := range []*host{a, b} {
		no := h.mustRefuse(c.with(c.request("x", 10), limit), driver.ReasonLimitRate)
		if no.Shared != limit {
			c.errorf("the refusal speaks of %+v: must be %+v", no.Shared, limit)
		}
	}
	a.free("after refusals", "x", 10, 10)
}

// countsBurst catches a store that counts fewer starts than there were in the same sixtieth of Per,
// for which it may keep one number.
func countsBurst(c *check) {
	h := c.host()
	limit := rated(100, time.Hour)
	for i := range limit.Rate {
		if a := h.start(limit); a.err != nil {
			c.fatalf("start %d of %d: %v", i+1, limit.Rate, a.err)
		}
	}
	h.mustRefuse(c.with(c.request("x", 10), limit), driver.ReasonLimitRate)
}

// countsNoRefusal catches a start that is counted although another limit, or the name itself,
// refuses, and a refusal that is counted or keeps a slot.
func countsNoRefusal(c *check) {
	h := c.host()
	first, second := rated(2, c.long), driver.SemaphoreSpec{Name: "second", Slots: 1}
	held := h.mustAcquire(c.request("second", 1)).grant
	for range 5 {
		h.mustRefuse(c.with(c.request("x", 5), first, second), driver.ReasonLimitFull)
	}
	own := h.fill("y", 1)
	for range 5 {
		h.mustRefuse(c.with(c.request("y", 1), first), driver.ReasonFull)
	}
	h.release(append(own, held)...)
	other := driver.SemaphoreSpec{Name: "other", Slots: 5, Rate: 1, Per: c.long}
	h.release(all(h.mustAcquire(c.with(c.request("x", 5), other)).grant)...)
	for range 5 {
		no := h.mustRefuse(c.with(c.request("x", 5), first, other), driver.ReasonLimitRate)
		if no.Shared != other {
			c.errorf("the refusal speaks of %+v: must be %+v", no.Shared, other)
		}
	}
	for i := range 2 {
		if a := h.start(first); a.err != nil {
			c.errorf("start %d of 2, after nothing but refusals: %v", i+1, a.err)
		}
	}
	for range 3 {
		h.mustRefuse(c.with(c.request("x", 5), first), driver.ReasonLimitRate)
	}
	h.free("after refusals", "x", 5, 5)
	h.free("after refusals", "limit", 3, 3)
}

// saysWhen catches a refusal whose ExpiresIn is wrong or too late for a caller that sleeps until
// then.
func saysWhen(c *check) {
	h := c.host()
	for _, rate := range []int{1, 3, 100} {
		limit := rated(rate, c.per())
		limit.Name = fmt.Sprintf("limit-%d", rate)
		limit.Slots = 1000
		var no *driver.NotAcquiredError
		refused := attempt{}
		tries, began := 0, time.Now()
		for ; no == nil && tries < 10*rate; tries++ {
			if refused = h.start(limit); refused.err == nil {
				continue
			}
			no, _ = errors.AsType[*driver.NotAcquiredError](refused.err)
			if reason(refused.err) != driver.ReasonLimitRate {
				c.fatalf("%v: must be refused because of the rate", refused.err)
			}
		}
		if took := time.Since(began); no == nil && took < 9*limit.Per {
			c.fatalf("%d starts within %v, and no refusal: %d in %v are allowed", tries, took, rate, limit.Per)
		} else if no == nil {
			continue // the host is too slow to reach this rate
		}
		longest := limit.Per + limit.Per/60 + c.h.Slack
		if no.ExpiresIn <= 0 || no.ExpiresIn > longest {
			c.errorf("a rate of %d: the next start is allowed in %v: must be up to %v", rate, no.ExpiresIn, longest)
		}
		until(refused.got.Add(no.ExpiresIn / 2))
		if early := h.start(limit); early.err == nil { // not too early after all: the host is slow
			continue
		}
		until(refused.got.Add(no.ExpiresIn + time.Microsecond))
		if a := h.start(limit); a.err != nil {
			c.errorf("a rate of %d: after the %v that the refusal named: %v", rate, no.ExpiresIn, a.err)
		}
	}
}

// attackWindows catches every window with too many starts. These may come across the border of two
// fixed windows, from a full token bucket, or from several hosts that count at the same time.
func attackWindows(rate int) func(*check) {
	return func(c *check) {
		per := c.per()
		limit := rated(rate, per)
		hosts := []*host{c.host(), c.host(), c.host(), c.host(), c.host()}
		var mu sync.Mutex
		var starts []attempt
		until(time.Now().Truncate(per).Add(per + per*3/5)) // within a window that begins at a round time
		end := time.Now().Add(4 * per)
		var wg sync.WaitGroup
		for w, h := range hosts {
			wg.Go(func() {
				for round := 0; round < 100*rate && time.Now().Before(end); round++ {
					a := h.start(limit)
					switch no, refused := errors.AsType[*driver.NotAcquiredError](a.err); {
					case a.err == nil:
						mu.Lock()
						starts = append(starts, a)
						mu.Unlock()
						if w == 0 && round%7 == 0 { // a pause in which a bucket could fill up
							time.Sleep(per / 10)
						}
					case !refused || no.Reason != driver.ReasonLimitRate:
						c.errorf("%v", a.err)
						return
					default:
						time.Sleep(max(no.ExpiresIn/3, per/100)) // twice too early
					}
					runtime.Gosched()
				}
			})
		}
		wg.Wait()
		c.windows(starts, rate, per)
		if len(starts) <= rate && (c.h.Virtual || rate < 10) {
			c.errorf("%d starts in four windows of %d", len(starts), rate)
		}
	}
}

// windows finds rate+1 starts within less than per. The store acted between each request and its
// answer.
func (c *check) windows(starts []attempt, rate int, per time.Duration) {
	slices.SortFunc(starts, func(a, b attempt) int { return a.got.Compare(b.got) })
	for i := rate; i < len(starts); i++ {
		// Of the rate+1 starts that were answered last, first was sent first.
		first := slices.MinFunc(starts[i-rate:i+1], func(a, b attempt) int { return a.sent.Compare(b.sent) })
		if within := starts[i].got.Sub(first.sent); within < per {
			c.errorf("%d starts within %v: at most %d within %v", rate+1, within, rate, per)
			return
		}
	}
}

// rateAndSlots catches a store that reports the rate although all slots are held, or that ignores
// the rate if slots are free.
func rateAndSlots(c *check) {
	h := c.host()
	limit := driver.SemaphoreSpec{Name: "limit", Slots: 2, Rate: 3, Per: c.long}
	ask := func() driver.Request { return c.with(c.request("x", 10), limit) }
	one, two := h.mustAcquire(ask()).grant, h.mustAcquire(ask()).grant
	h.mustRefuse(ask(), driver.ReasonLimitFull)
	h.release(all(one)...)
	three := h.mustAcquire(ask()).grant
	h.mustRefuse(ask(), driver.ReasonLimitFull) // if both refuse, slots come first
	h.release(append(all(two), all(three)...)...)
	h.mustRefuse(ask(), driver.ReasonLimitRate)
	limit.Rate, limit.Per = 0, 0
	h.release(all(h.mustAcquire(ask()).grant)...) // a rate does not limit requests without a rate
}

// ratesDisagree catches a store that counts separately for each rate.
func ratesDisagree(c *check) {
	h := c.host()
	start := func(rate int, per time.Duration, want driver.Reason) {
		if a := h.start(rated(rate, per)); reason(a.err) != want {
			c.errorf("a start with rate %d per %v: %v: must be %q", rate, per, a.err, cmp.Or(string(want), "granted"))
		}
	}
	for range 3 {
		start(3, c.long, "")
	}
	start(3, c.long, driver.ReasonLimitRate)
	start(5, c.long, "")
	start(100, c.long, "")
	start(5, c.long, driver.ReasonLimitRate)
	start(2, 2*c.long, driver.ReasonLimitRate)
	start(6, 2*c.long, "")
	start(6, 2*c.long, driver.ReasonLimitRate)
	start(6, c.long, driver.ReasonLimitRate)
}

// largestRate catches a store that fails with large rates, or whose memory grows with them.
func largestRate(c *check) {
	h := c.host()
	for _, per := range []time.Duration{driver.MinPer, time.Hour} {
		limit := rated(driver.MaxRate, per)
		limit.Name = fmt.Sprintf("limit-%v", per)
		for range 10 {
			if a := h.start(limit); a.err != nil {
				c.errorf("a rate of %d per %v: %v", driver.MaxRate, per, a.err)
				return
			}
		}
		limit.Rate = 3
		if a := h.start(limit); per == time.Hour && reason(a.err) != driver.ReasonLimitRate {
			c.errorf("after 10 starts, with a rate of 3: %v", a.err)
		}
	}
}

// rateClockBack catches a store that grants nothing until its clock catches up, or that forgets the
// starts that it has counted.
func rateClockBack(c *check) {
	if c.ns.StepClock == nil {
		c.skip("the Namespace cannot step the store's clock")
	}
	h := c.host()
	limit := rated(2, 10*c.per())
	c.ns.StepClock(2 * time.Hour)
	for range 2 {
		if a := h.start(limit); a.err != nil {
			c.fatalf("%v", a.err)
		}
	}
	c.ns.StepClock(-2 * time.Hour)
	refused := h.start(limit)
	no, ok := errors.AsType[*driver.NotAcquiredError](refused.err)
	if !ok || no.Reason != driver.ReasonLimitRate || no.ExpiresIn > limit.Per+c.h.Slack {
		c.fatalf("after the clock was set back: %v: must be refused for up to %v", refused.err, limit.Per)
	}
	until(refused.got.Add(no.ExpiresIn + time.Microsecond))
	c.ns.StepClock(0) // the clock may not have moved
	for i := range 2 {
		if a := h.start(limit); a.err != nil {
			c.errorf("start %d after the %v that the refusal named: %v", i+1, no.ExpiresIn, a.err)
		}
	}
}
