package dlocktest

import (
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// clocks test a store whose clock was wrong and was corrected. Instants recorded meanwhile lie far
// in the future or the past.
var clocks = clocksWrongBy(2*time.Second, 10*time.Minute, 2*time.Hour, 400*24*time.Hour)

func clocksWrongBy(steps ...time.Duration) (list []promise) {
	for _, by := range steps {
		list = append(list,
			promise{name: fmt.Sprintf("clock/was %v ahead", by), show: clockWasWrong(by)},
			promise{name: fmt.Sprintf("clock/was %v behind", by), show: clockWasWrong(-by)})
	}
	return append(list, promise{name: "clock/leases of a clock that was ahead", show: leasesOfAClockAhead})
}

// leasesOfAClockAhead catches a store that keeps a dead holder's slot until the clock catches up,
// and a store that ends the lease while its holder still trusts it.
func leasesOfAClockAhead(c *check) {
	if c.ns.StepClock == nil {
		c.skip("the Namespace cannot step the store's clock")
	}
	a, b := c.host(), c.host()
	const by = 2 * time.Hour
	c.ns.StepClock(by)
	alive := a.mustAcquire(c.request("two", 2))
	dead := []attempt{a.mustAcquire(c.brief("two", 2)), a.mustAcquire(c.brief("mutex", 0))}
	limit := driver.SemaphoreSpec{Name: "limit", Slots: 1}
	if c.h.Features.Shared {
		dead = append(dead, a.mustAcquire(c.with(c.brief("limited", 2), limit)))
	}
	c.ns.StepClock(-by)
	for _, held := range dead {
		// Each refusal finds one of the leases that were granted while the clock was ahead,
		// starting with the one that ends last. For "two", that lease is alive.
		find := 1
		if held.req.Name == alive.req.Name {
			find = 2
		}
		var ends time.Time // at the latest: a TTL after the refusal that finds the lease
		for {
			probe := b.try(c.with(c.request(held.req.Name, held.req.Slots), held.req.Shared...))
			if probe.err == nil && probe.got.Before(held.heldUntil()) {
				c.fatalf("%s: a lease of %v was granted to another %v after it was asked for", held.req.Name,
					held.req.TTL, probe.got.Sub(held.sent))
			}
			if probe.err == nil {
				break
			}
			if why := reason(probe.err); why != driver.ReasonFull && why != driver.ReasonLimitFull {
				c.fatalf("%v: must be refused as full", probe.err)
			}
			if find--; find == 0 {
				ends = probe.got.Add(held.req.TTL + c.h.Slack)
			}
			if find <= 0 && !probe.sent.Before(ends) {
				c.fatalf("%s: a lease of %v was still held %v after the refusal that found it: %v", held.req.Name,
					held.req.TTL, probe.sent.Sub(ends)+held.req.TTL, probe.err)
			}
			time.Sleep(c.step())
		}
	}
	c.want("extend of a lease that was refused meanwhile", a.extend(c.long, alive.grant), driver.GrantOK)
	b.mustRefuse(c.request("two", 2), driver.ReasonFull)
}

// clockWasWrong catches a store that refuses ticks until its clock catches up, that counts a delay
// from a release in the future, that reports a success in the future as one from just now, or that
// pauses a resumed name again.
func clockWasWrong(by time.Duration) func(*check) {
	return func(c *check) {
		if c.ns.StepClock == nil {
			c.skip("the Namespace cannot step the store's clock")
		}
		f, a, b := c.h.Features, c.host(), c.host()
		began, ahead := time.Now(), c.ns.StepClock(by)
		if f.AtomicTick {
			a.succeed(a.mustAcquire(c.tick("cron", 3, time.Now().Add(ahead), 1)).grant)
		}
		if f.Delay {
			a.succeed(a.mustAcquire(c.delayed("after", time.Minute)).grant)
		}
		version := int64(0)
		if f.Control {
			a.pauseFor("paused", time.Hour)
			a.resume("paused")
			a.limit("limited", 0)
			a.resetLimit("limited")
			version = a.inspect("paused")[0].Version
		}

		c.ns.StepClock(-by)
		// Instants slightly in the future are accepted, because clocks differ.
		little := time.Duration(0)
		if by > 0 && by <= driver.MaxTickAhead {
			little = by
		}
		known := by <= driver.MaxTickAhead
		told := func(what string, answer attempt) {
			age := answer.info().SuccessAge
			least, most := max(time.Microsecond, -by-c.h.Slack), max(time.Microsecond, -by+time.Since(began)+c.h.Slack)
			switch {
			case !f.LastSuccess:
			case !known && age != 0:
				c.errorf("%s: the last success was %v ago: must be 0, it lies in the future", what, age)
			case known && (age < least || age > most):
				c.errorf("%s: the last success was %v ago: must be %v to %v", what, age, least, most)
			}
		}
		if f.AtomicTick && f.Control {
			if o := b.inspect("cron")[0]; o.LastTickAhead == known {
				c.errorf("the latest tick is told as one that counts for nothing: %t", !known)
			}
		}
		if f.AtomicTick {
			told("a tick", b.mustAcquire(c.tick("cron", 3, time.Now().Add(little+time.Millisecond), 1)))
		}
		if f.Delay {
			after := b.try(c.delayed("after", time.Minute))
			told("a delay", after)
			switch why := reason(after.err); {
			case known && by > -time.Minute && why != driver.ReasonTickEarly:
				c.errorf("a delay of a minute after a moment: %v: must be refused as %q", after.err,
					driver.ReasonTickEarly)
			case (!known || by <= -time.Minute) && after.err != nil:
				c.errorf("a delay of a minute: %v: must be granted", after.err)
			}
		}
		if !f.Control {
			return
		}
		for _, name := range []string{"paused", "limited"} {
			if f.AtomicTick {
				b.ran(name)
			}
			if f.AtomicTick && little == 0 { // otherwise it came due before the end
				b.mustAcquire(c.missed(name, c.later()))
			}
			b.mustAcquire(c.request(name, 3))
		}
		if pause := b.inspect("paused")[0].Pause; pause != nil {
			c.errorf("paused for another %v, though it was resumed", pause.For)
		}
		b.update("paused", driver.Update{})
		if after := b.inspect("paused")[0].Version; after <= version {
			c.errorf("an update has version %d after %d: must grow", after, version)
		}
	}
}
