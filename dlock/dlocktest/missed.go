package dlocktest

import (
	"fmt"
	"math"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

var missing = []promise{
	{name: "missed/what ran was not missed", given: needsTick, show: missedTicks},
	{name: "missed/a new schedule has missed nothing", given: needsTick, show: missedBySchedule},
	{name: "missed/a first tick that was asked about", given: needsTick, show: missedFirst},
	{name: "missed/asking takes no tick", given: needsTick, show: missedAsked},
	{name: "missed/what came due during a lease was skipped", given: needsTick, show: missedWhileHeld},
	{name: "missed/also if nobody released it", given: needsTick, show: missedWhileExpired},
	{name: "missed/not during a pause", given: needsControl, show: missedInPause},
	{name: "missed/not under a limit of nothing", given: needsControl, show: missedUnderLimitZero},
}

// missed returns a request for a tick that came due at the given time while no host was running.
func (c *check) missed(name string, due time.Time) driver.Request {
	req := c.tick(name, 3, due, 3)
	req.Tick.MissedAt = due
	return req
}

// ran starts a tick that is due now, releases its lease, and returns its instant.
func (h *host) ran(name string) time.Time {
	at := time.Now()
	h.c.want("release", h.release(h.mustAcquire(h.c.tick(name, 3, at, 3)).grant), driver.GrantOK)
	return at
}

// later returns an instant that is measurably later than all earlier ones.
func (c *check) later() time.Time {
	c.pause()
	return time.Now()
}

// missedTicks catches a store that lets a host claim a tick again after it ran, or claim a tick
// from before the timer existed.
func missedTicks(c *check) {
	a, b := c.host(), c.host()
	due := thisSecond()
	a.mustRefuse(c.missed("x", due), driver.ReasonTickFirst)
	c.want("release", a.release(a.mustAcquire(c.request("x", 3)).grant), driver.GrantOK) // a lease without a tick
	a.mustRefuse(c.missed("x", due), driver.ReasonTickFirst)
	at := a.ran("x")
	b.mustRefuse(c.missed("x", at), driver.ReasonTickTaken) // even though two more starts are allowed
	b.mustRefuse(c.missed("x", at.Add(-time.Second)), driver.ReasonTickLate)
	next := c.later()
	b.mustAcquire(c.missed("x", next))
	a.mustRefuse(c.missed("x", next), driver.ReasonTickTaken)
	a.mustRefuse(c.tick("x", 3, at, 3), driver.ReasonTickLate)
}

// missedBySchedule catches a store that grants a missed tick although the timer had another
// schedule when the tick came due.
func missedBySchedule(c *check) {
	a, b := c.host(), c.host()
	known := []int64{1, 0, -1, math.MaxInt64, math.MinInt64, math.MaxInt64 - 1, 1}
	for i, is := range known {
		was := known[(i+1)%len(known)]
		name := fmt.Sprint("x", i)
		of := func(schedule int64, req driver.Request) driver.Request {
			req.Tick.Schedule = schedule
			return req
		}
		run := func(h *host, req driver.Request) {
			c.want("release", h.release(h.mustAcquire(req).grant), driver.GrantOK)
		}
		run(a, of(was, c.tick(name, 3, time.Now(), 3)))
		c.pause()
		last := of(is, c.tick(name, 3, time.Now(), 3))
		run(b, last)
		taken := driver.ReasonTickTaken
		if was != is {
			taken = driver.ReasonTickFirst
		}
		a.mustRefuse(of(was, c.missed(name, last.Tick.At)), taken)
		run(b, c.request(name, 3)) // a grant without a tick does not change this
		a.mustRefuse(of(was, c.missed(name, last.Tick.At)), taken)
		run(b, of(is, c.missed(name, c.later())))
		due := c.later()
		if was != is { // the schedule became known, but another tick has been claimed since
			run(a, of(was, c.tick(name, 3, time.Now(), 3)))
			due = c.later()
			a.mustRefuse(of(is, c.missed(name, due)), driver.ReasonTickFirst)
			a.mustRefuse(of(is, c.missed(name, due)), driver.ReasonTickFirst)
			due = c.later()
		}
		run(b, of(is, c.missed(name, due)))
	}
}

// missedFirst catches a store that knows a timer only after the claim of its first tick. If that
// tick came due while no host ran, no host would make up for it.
func missedFirst(c *check) {
	a, b := c.host(), c.host()
	known := func(name string) driver.Request {
		req := c.request(name, 3)
		tick := driver.KnownSince(7, time.Now())
		req.Tick = &tick
		return req
	}
	for _, name := range []string{"asked", "known", "claimed"} {
		of := func(schedule int64, due time.Time) driver.Request {
			req := c.missed(name, due)
			req.Tick.Schedule = schedule
			return req
		}
		before := time.Now().Add(-time.Hour)
		if name == "claimed" { // claimed by a timer of that name with another schedule
			tick := c.tick(name, 3, before.Add(time.Second), 3)
			tick.Tick.Schedule = 8
			c.want("release", a.release(a.mustAcquire(tick).grant), driver.GrantOK)
		}
		unasked := c.later()
		c.pause()
		if name == "known" {
			a.mustRefuse(known(name), driver.ReasonTickFirst)
			if no := b.try(known(name)); no.err == nil {
				c.errorf("KnownSince was granted")
			}
			a.mustRefuse(of(7, unasked), driver.ReasonTickFirst)
		} else {
			a.mustRefuse(of(7, before), driver.ReasonTickFirst)
			b.mustRefuse(of(7, before), driver.ReasonTickFirst)
		}
		due := c.later()
		b.mustAcquire(of(7, due))
		a.mustRefuse(of(7, due), driver.ReasonTickTaken)
		a.try(known(name))
		a.mustRefuse(of(7, due), driver.ReasonTickTaken)
	}
	// The store now knows the schedule that a host with a fast clock asked about.
	ahead := known("ahead")
	ahead.Tick.MissedAt = time.Now().Add(time.Hour)
	a.mustRefuse(ahead, driver.ReasonTickFirst)
	due := c.missed("ahead", c.later())
	due.Tick.Schedule = 7
	b.mustAcquire(due)
}

// missedAsked catches a store on which learning a schedule affects other hosts. A due tick must
// still start, and a tick of a paused timer must not.
func missedAsked(c *check) {
	a, b := c.host(), c.host()
	for name, slots := range map[string]int{"one": 1, "many": 3} {
		of := func(schedule int64, req driver.Request) driver.Request {
			req.Slots, req.Tick.Schedule = slots, schedule
			return req
		}
		last := c.later()
		c.want("release", a.release(a.mustAcquire(of(1, c.tick(name, slots, last, 1))).grant), driver.GrantOK)
		due := c.later()
		c.pause()
		a.mustRefuse(of(2, c.missed(name, time.Now())), driver.ReasonTickFirst)
		if c.h.Features.Control {
			if at := a.inspect(name)[0].LastTick; !at.Equal(last.Truncate(time.Microsecond)) {
				c.errorf("a schedule was asked about: the latest tick claimed is %v: must stay %v", at, last)
			}
		}
		c.want("release", b.release(b.mustAcquire(of(1, c.tick(name, slots, due, 1))).grant), driver.GrantOK)
		a.mustRefuse(of(1, c.tick(name, slots, due, 1)), driver.ReasonTickTaken)
		a.mustAcquire(of(2, c.missed(name, c.later()))) // ticks of the old schedule have no effect on this
	}
	now := thisSecond()
	a.mustRefuse(c.missed("new", now), driver.ReasonTickFirst)
	b.mustAcquire(c.tick("new", 3, now, 1))
	a.mustRefuse(c.tick("new", 3, now, 1), driver.ReasonTickTaken)
	if !c.h.Features.Control {
		return
	}
	a.pauseFor("paused", time.Hour)
	a.mustRefuse(c.missed("paused", thisSecond()), driver.ReasonTickFirst)
	due := c.later()
	a.mustRefuse(c.missed("paused", due), driver.ReasonPaused)
	c.pause()
	a.resume("paused")
	b.mustRefuse(c.missed("paused", due), driver.ReasonPaused)
	b.mustAcquire(c.missed("paused", c.later()))
}

// missedWhileHeld catches a store that grants a missed tick although running hosts had skipped it
// because the previous run was still in progress.
func missedWhileHeld(c *check) {
	a, b := c.host(), c.host()
	for i, slots := range []int{1, 3} {
		name := nameOf("x", slots)
		missed := func(due time.Time) driver.Request {
			req := c.missed(name, due)
			req.Slots = slots
			return req
		}
		a.ran(name)
		before := c.later()
		c.pause()
		grants := []driver.Grant{a.mustAcquire(c.request(name, slots)).grant}
		within := c.later()
		c.pause()
		b.mustRefuse(missed(before), driver.ReasonTickHeld)
		b.mustRefuse(missed(within), driver.ReasonTickHeld)
		c.want("extend", a.extend(c.long, grants[0]), driver.GrantOK)
		grants[0].Succeeded = i == 0
		c.want("release", a.release(grants[0]), driver.GrantOK)
		b.mustRefuse(missed(within), driver.ReasonTickHeld)
		late := missed(within) // if hosts delay ticks, the time at which the tick came due counts, not its instant
		late.Tick.MissedAt = c.later()
		if slots > 1 { // the lease may be in any slot
			c.pause()
			first, second := a.mustAcquire(c.request(name, slots)).grant, a.mustAcquire(c.request(name, slots)).grant
			c.want("release", a.release(second), driver.GrantOK)
			c.want("release", a.release(first), driver.GrantOK)
			b.mustRefuse(late, driver.ReasonTickHeld)
			late.Tick.MissedAt = c.later()
		}
		b.mustAcquire(late)
	}
}

// missedWhileExpired catches a store that ignores expired leases. Their holders were running until
// they died.
func missedWhileExpired(c *check) {
	a, b := c.host(), c.host()
	a.ran("x")
	within := c.later()
	held := a.mustAcquire(c.brief("x", 3))
	until(held.endedBy(c))
	after := c.later()
	b.mustRefuse(c.missed("x", within), driver.ReasonTickHeld)
	b.mustAcquire(c.missed("x", after))
	// This also holds if another holder has had the slot since.
	a.ran("y")
	within = c.later()
	held = a.mustAcquire(c.brief("y", 3))
	until(held.endedBy(c))
	c.want("release", b.release(b.mustAcquire(c.request("y", 3)).grant), driver.GrantOK)
	b.mustRefuse(c.missed("y", within), driver.ReasonTickHeld)
	b.mustAcquire(c.missed("y", c.later()))
}

func missedInPause(c *check) {
	a, b := c.host(), c.host()
	if !c.h.Features.AtomicTick {
		return
	}
	a.ran("x")
	a.pauseFor("x", time.Hour)
	within := c.later()
	c.pause()
	a.resume("x")
	if no := b.mustRefuse(c.missed("x", within), driver.ReasonPaused); no.PausedBy != ann {
		c.errorf("the tick fell into a pause %+v: must be %+v", no.PausedBy, ann)
	}
	delayed := c.missed("x", within)
	delayed.Tick.MissedAt = c.later()
	b.mustAcquire(delayed)
}

// missedUnderLimitZero catches a limit of 0 that acts as a pause only while it is set and is
// forgotten afterwards.
func missedUnderLimitZero(c *check) {
	a, b := c.host(), c.host()
	if !c.h.Features.AtomicTick {
		return
	}
	for i, lift := range []int{requested, 2} {
		name := fmt.Sprint("x", i)
		a.ran(name)
		if i > 0 {
			a.pauseFor(name, time.Hour) // ends before the limit
		}
		a.limit(name, 0)
		if i > 0 {
			a.resume(name)
		}
		within := c.later()
		c.pause()
		b.limit(name, lift)
		if no := b.mustRefuse(c.missed(name, within), driver.ReasonPaused); no.PausedBy != ann {
			c.errorf("the tick fell under a limit of 0 %+v: must be %+v", no.PausedBy, ann)
		}
		if p := b.inspect(name)[0].Pause; p != nil {
			c.errorf("a limit of 0 that was lifted is told as a pause: %+v", p)
		}
		due := c.later()
		b.limit(name, 1) // this lifts no limit of 0
		b.mustAcquire(c.missed(name, due))
	}
	// If a pause outlasts the limit, the name stays paused.
	a.pauseFor("y", time.Hour)
	a.limit("y", 0)
	a.resetLimit("y")
	if no := b.mustRefuse(c.request("y", 3), driver.ReasonPaused); no.ExpiresIn < 50*time.Minute {
		c.errorf("a limit of 0 was lifted in a pause of 1 h: %v of it are left", no.ExpiresIn)
	}
}
