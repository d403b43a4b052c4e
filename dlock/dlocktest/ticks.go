package dlocktest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

var ticks = []promise{
	{name: "tick/at most Max starts", given: needsTick, show: startsPerTick},
	{name: "tick/a limit override adds no starts", given: needsControl, show: startsUnderLimits},
	{name: "tick/older is late", given: needsTick, show: lateTick},
	{name: "tick/too far ahead", given: needsTick, show: tickAhead},
	{name: "tick/told apart by the microsecond", given: needsTick, show: microseconds},
	{name: "tick/stays taken after its lease", given: needsTick, show: tickOutlivesLease},
	{name: "tick/refused slot takes no start", given: needsTick, show: refusedSlot},
	{name: "tick/refused start takes no slot", given: needsTick, show: refusedStart},
	{name: "tick/token asked again starts once", given: needsTick, show: startsOnce},
	{name: "tick/is its name's own", given: needsTick, show: ticksApart},
	{name: "tick/many hosts at once", given: needsTick, show: tickRace},
}

func needsTick(f Features) string {
	if !f.AtomicTick {
		return "the store does not state AtomicTick"
	}
	return ""
}

// tick returns a request for a slot and a start of a tick.
func (c *check) tick(name string, slots int, at time.Time, most int) driver.Request {
	req := c.request(name, slots)
	req.Tick = &driver.Tick{At: at, Max: most}
	return req
}

// thisSecond returns an instant that all hosts with the same schedule would use.
func thisSecond() time.Time { return time.Now().Truncate(time.Second) }

// startsPerTick catches a slot that starts the same tick again after its release.
func startsPerTick(c *check) {
	hosts := []*host{c.host(), c.host(), c.host()}
	at := thisSecond().Add(-time.Minute)
	for _, most := range []int{1, 2, 5} {
		for _, slots := range []int{0, 3} {
			name := fmt.Sprintf("t-%d-%d", most, slots)
			for i := range 3 {
				due := at.Add(time.Duration(i) * time.Second)
				for range most {
					a := hosts[rand.N(3)].mustAcquire(c.tick(name, slots, due, most))
					c.want("release", hosts[rand.N(3)].release(a.grant), driver.GrantOK)
				}
				for _, h := range hosts {
					h.mustRefuse(c.tick(name, slots, due, most), driver.ReasonTickTaken)
				}
				// The same instant in another time zone is the same tick.
				hosts[0].mustRefuse(c.tick(name, slots, due.In(time.FixedZone("", 5*3600)), most),
					driver.ReasonTickTaken)
			}
		}
	}
	// Requests without a tick are not counted.
	for range 3 {
		a := hosts[0].mustAcquire(c.request("t-1-3", 3))
		hosts[0].release(a.grant)
	}
}

// startsUnderLimits catches a store that applies a limit of slots to starts. Raising the limit for
// a day would then send each mail twice.
func startsUnderLimits(c *check) {
	if !c.h.Features.AtomicTick {
		return
	}
	a, b := c.host(), c.host()
	at := thisSecond().Add(-time.Minute)
	starts := func(slots, most int) {
		at = at.Add(time.Second)
		for range most {
			g := a.mustAcquire(c.tick("x", slots, at, most))
			c.want("release", b.release(g.grant), driver.GrantOK)
		}
		b.mustRefuse(c.tick("x", slots, at, most), driver.ReasonTickTaken)
	}
	for _, limit := range []int{5, 2, 1, requested} {
		a.limit("x", limit)
		starts(1, 1)
		starts(3, 3)
		starts(3, 1)
	}
}

// lateTick catches a store that lets a slow host start a tick older than the latest one.
func lateTick(c *check) {
	h := c.host()
	at := thisSecond()
	h.mustAcquire(c.tick("t", 9, at, 3))
	for _, before := range []time.Duration{time.Microsecond, time.Millisecond, time.Second, time.Hour,
		10 * 365 * 24 * time.Hour} {
		h.mustRefuse(c.tick("t", 9, at.Add(-before), 3), driver.ReasonTickLate)
	}
	h.mustAcquire(c.tick("t", 9, at, 3)) // the refusals changed neither the latest tick nor its count
	h.mustAcquire(c.tick("t", 9, at, 3))
	h.mustRefuse(c.tick("t", 9, at, 3), driver.ReasonTickTaken)
	h.mustAcquire(c.tick("t", 9, at.Add(time.Second), 3))
	h.mustRefuse(c.tick("t", 9, at, 3), driver.ReasonTickLate)
	// If a name has no tick yet, no tick is too old.
	h.mustRefuse(c.tick("new", 9, time.UnixMicro(-1), 3), driver.ReasonTickLate)
}

// tickAhead catches a store on which one host with a fast clock blocks the ticks of all others.
func tickAhead(c *check) {
	h := c.host()
	at := thisSecond()
	for _, slots := range []int{0, 1} {
		name := fmt.Sprintf("t-%d", slots)
		h.mustRefuse(c.tick(name, slots, time.Now().Add(time.Minute), 1), driver.ReasonTickAhead)
		h.mustRefuse(c.tick(name, slots, time.Now().Add(1000*time.Hour), 1), driver.ReasonTickAhead)
		a := h.mustAcquire(c.tick(name, slots, at, 1))
		c.want("release", h.release(a.grant), driver.GrantOK)
		ahead := 3 * time.Second // a slightly fast clock is accepted
		if c.h.Virtual {
			h.mustRefuse(c.tick(name, slots, time.Now().Add(driver.MaxTickAhead+time.Microsecond), 1),
				driver.ReasonTickAhead)
			ahead = driver.MaxTickAhead
		}
		h.mustAcquire(c.tick(name, slots, time.Now().Add(ahead), 1))
	}
}

// microseconds catches instants that are truncated to milliseconds or seconds, or converted to
// floats.
func microseconds(c *check) {
	h := c.host()
	at := thisSecond().Add(-time.Second + 999*time.Microsecond)
	for _, name := range []string{"t", "u"} {
		for i := range 5 {
			due := at.Add(time.Duration(i) * time.Microsecond)
			h.mustAcquire(c.tick(name, 9, due, 1))
			h.mustRefuse(c.tick(name, 9, due, 1), driver.ReasonTickTaken)
			h.mustRefuse(c.tick(name, 9, due.Add(900*time.Nanosecond), 1), driver.ReasonTickTaken)
			h.mustRefuse(c.tick(name, 9, due.Add(-time.Microsecond), 1), driver.ReasonTickLate)
		}
		at = at.Add(time.Millisecond + time.Microsecond)
	}
}

// tickOutlivesLease catches a claim that is stored with the lease and ends with it. A short job
// would then run once per host.
func tickOutlivesLease(c *check) {
	a, b := c.host(), c.host()
	at := thisSecond()
	for _, slots := range []int{0, 1} {
		name := fmt.Sprintf("t-%d", slots)
		req := c.brief(name, slots)
		req.Tick = &driver.Tick{At: at, Max: 1}
		held := a.mustAcquire(req)
		until(held.endedBy(c))
		b.mustRefuse(c.tick(name, slots, at, 1), driver.ReasonTickTaken)
		next := b.mustAcquire(c.tick(name, slots, at.Add(time.Second), 1))
		c.want("release", b.release(next.grant), driver.GrantOK)
		a.mustRefuse(c.tick(name, slots, at.Add(time.Second), 1), driver.ReasonTickTaken)
	}
}

// refusedSlot catches a tick that is claimed although no slot was free. No host would start it.
func refusedSlot(c *check) {
	a, b := c.host(), c.host()
	at := thisSecond()
	for _, slots := range []int{0, 2} {
		name := fmt.Sprintf("t-%d", slots)
		first := a.fillAny(name, slots)
		for i := range 3 {
			b.mustRefuse(c.tick(name, slots, at.Add(time.Duration(i)*time.Millisecond), 1), driver.ReasonFull)
		}
		c.want("release", a.release(first[0]), driver.GrantOK)
		// The later ticks were not claimed either. Otherwise this tick would be late.
		next := b.mustAcquire(c.tick(name, slots, at, 1))
		b.release(next.grant)
		b.mustRefuse(c.tick(name, slots, at, 1), driver.ReasonTickTaken)
	}
}

// refusedStart catches a slot that is taken although the tick was refused. No host would use the
// slot until it expires.
func refusedStart(c *check) {
	a, b := c.host(), c.host()
	at := thisSecond()
	for _, slots := range []int{0, 2} {
		name := fmt.Sprintf("t-%d", slots)
		first := a.mustAcquire(c.tick(name, slots, at, 1))
		c.want("release", a.release(first.grant), driver.GrantOK)
		for range 3 {
			b.mustRefuse(c.tick(name, slots, at, 1), driver.ReasonTickTaken)
			b.mustRefuse(c.tick(name, slots, at.Add(-time.Second), 1), driver.ReasonTickLate)
			b.mustRefuse(c.tick(name, slots, at.Add(time.Hour), 1), driver.ReasonTickAhead)
		}
		refused := c.tick(name, slots, at, 1)
		b.mustRefuse(refused, driver.ReasonTickTaken)
		c.want("release of what was refused", b.release(byToken(refused)), driver.GrantLost)
		a.fillAny(name, slots)
	}
}

// startsOnce catches a retry that counts as a second start, or that is refused because the first
// request took the tick.
func startsOnce(c *check) {
	open := c.host()
	faulty := NewFaulty(open.store)
	h := &host{c: c, store: faulty}
	at := thisSecond()
	for _, slots := range []int{0, 9} {
		name := fmt.Sprintf("t-%d", slots)
		first := c.tick(name, slots, at, 2)
		faulty.InjectN(1, LostReply, OpAcquire)
		h.try(first)
		for range 3 {
			h.mustAcquire(first)
		}
		if slots == 0 {
			c.want("release", h.release(byToken(first)), driver.GrantOK)
		}
		second := open.mustAcquire(c.tick(name, slots, at, 2)) // the second of two starts
		if slots == 0 {
			c.want("release", h.release(second.grant), driver.GrantOK)
		}
		open.mustRefuse(c.tick(name, slots, at, 2), driver.ReasonTickTaken)
		open.mustAcquire(c.tick(name, slots, at.Add(time.Second), 2))
		if slots > 0 {
			h.mustAcquire(first) // its lease continues although the fleet is at a later tick
		}
	}
}

// ticksApart catches a store that keeps one tick for all names.
func ticksApart(c *check) {
	h := c.host()
	at := thisSecond()
	h.mustAcquire(c.tick("a", 3, at, 1))
	h.mustAcquire(c.tick("b", 3, at.Add(-time.Hour), 1))
	h.mustAcquire(c.tick("ab", 0, at.Add(-time.Hour), 1))
	h.mustRefuse(c.tick("a", 3, at, 1), driver.ReasonTickTaken)
	// The tick belongs to the name, so hosts with different numbers of slots share it.
	h.mustRefuse(c.tick("a", 5, at, 1), driver.ReasonTickTaken)
	// A mutex is independent of a semaphore of the same name.
	h.mustAcquire(c.tick("a", 0, at.Add(-time.Hour), 1))
	h.mustRefuse(c.tick("a", 3, at, 1), driver.ReasonTickTaken)
}

// tickRace catches a count that is read and written in two steps.
func tickRace(c *check) {
	at := thisSecond().Add(-time.Minute)
	const workers = 12
	hosts := []*host{c.host(), c.host(), c.host()}
	for round := range 8 {
		most := 1 + round%3
		slots := []int{1, 3, workers}[round%3]
		due := at.Add(time.Duration(round) * time.Second)
		var mu sync.Mutex
		starts := 0
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				h := hosts[w%len(hosts)]
				for range 3 {
					a := h.try(c.tick("t", slots, due, most))
					switch {
					case a.err == nil:
						mu.Lock()
						starts++
						mu.Unlock()
						ctx, cancel := callContext()
						_, _ = h.store.Release(ctx, a.grant)
						cancel()
					case reason(a.err) != driver.ReasonTickTaken && reason(a.err) != driver.ReasonFull:
						c.errorf("tick %d: %v", round, a.err)
					}
				}
			})
		}
		wg.Wait()
		// If a host was refused because all slots were held, the remaining starts of the tick must
		// still be available.
		for starts < most {
			a := hosts[0].try(c.tick("t", slots, due, most))
			if a.err != nil {
				c.fatalf("tick %d had %d of %d starts, and then: %v", round, starts, most, a.err)
			}
			starts++
			hosts[0].release(a.grant)
		}
		if starts > most {
			c.errorf("%d starts of tick %d: at most %d", starts, round, most)
		}
		hosts[0].mustRefuse(c.tick("t", slots, due, most), driver.ReasonTickTaken)
	}
}
