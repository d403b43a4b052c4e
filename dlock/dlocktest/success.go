package dlocktest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

var successes = []promise{
	{name: "success/told to all who ask", given: needsSuccess, show: successTold},
	{name: "success/told with every refusal", given: needsSuccess, show: successRefused},
	{name: "success/stays until the next one", given: needsSuccess, show: successStays},
	{name: "success/not of a lost grant", given: needsSuccess, show: successNotLost},
	{name: "success/by token with AnySlot", given: needsSuccess, show: successAnySlot},
	{name: "success/told when asked again", given: needsSuccess, show: successAskedAgain},
	{name: "success/is its name's own", given: needsSuccess, show: successApart},
	{name: "success/each grant of a batch for itself", given: needsSuccess, show: successBatch},
}

func needsSuccess(f Features) string {
	if !f.LastSuccess {
		return "the store does not state Success"
	}
	return ""
}

// nameOf returns a name for each number of slots.
func nameOf(name string, slots int) string { return fmt.Sprintf("%s-%d", name, slots) }

// A span is the time in which an event happened: after sent and before got.
type span struct{ sent, got time.Time }

// succeed releases a held grant as Succeeded and returns when that happened.
func (h *host) succeed(g driver.Grant) span {
	g.Succeeded = true
	s := span{sent: time.Now()}
	results := h.release(g)
	s.got = time.Now()
	h.c.want("release as succeeded", results, driver.GrantOK)
	return s
}

// info returns the Info of the answer to a request.
func (a attempt) info() driver.Info {
	if no, ok := errors.AsType[*driver.NotAcquiredError](a.err); ok {
		return no.Info
	}
	return a.grant.Info
}

// since checks the last success in the answer to a request, which may be a grant or a refusal.
func (c *check) since(what string, a attempt, success span) {
	got := a.info().SuccessAge
	least, most := max(time.Microsecond, a.sent.Sub(success.got)-c.h.Slack),
		max(time.Microsecond, a.got.Sub(success.sent)+c.h.Slack)
	if got < least || got > most {
		c.note(2, "%s: the last success was %v ago: must be %v to %v", what, got, least, most)
	}
}

// never checks that the answer to a request reports no success.
func (c *check) never(what string, a attempt) {
	if got := a.info().SuccessAge; got != 0 {
		c.note(2, "%s: the last success was %v ago: must be 0, there was none", what, got)
	}
}

// pause makes two moments distinguishable. Without it, a store that counts from the wrong moment
// could pass.
func (c *check) pause() { until(time.Now().Add(2*c.h.Slack + c.step())) }

// successTold catches a store that does not record a success, counts from another moment, or
// reports the success only to the host that had it.
func successTold(c *check) {
	a, b := c.host(), c.host()
	for _, slots := range []int{0, 1, 3} {
		first := a.mustAcquire(c.request(nameOf("x", slots), slots))
		c.never("the first grant", first)
		c.pause() // the release counts, not the grant
		done := a.succeed(first.grant)
		for range 3 {
			next := b.mustAcquire(c.request(nameOf("x", slots), slots))
			c.since("a grant", next, done)
			c.want("release", b.release(next.grant), driver.GrantOK)
			c.pause()
		}
		again := b.mustAcquire(c.request(nameOf("x", slots), slots))
		c.pause()
		done = b.succeed(again.grant) // a later success replaces it
		next := a.mustAcquire(c.request(nameOf("x", slots), slots))
		c.since("a grant after a second success", next, done)
		c.want("release", a.release(next.grant), driver.GrantOK)
	}
}

// successRefused catches refusals without the last success. Most hosts are refused most of the
// time.
func successRefused(c *check) {
	a, b := c.host(), c.host()
	for _, slots := range []int{0, 2} {
		done := a.succeed(a.mustAcquire(c.request(nameOf("x", slots), slots)).grant)
		c.pause()
		grants := a.fillAny(nameOf("x", slots), slots)
		refused := func(what string, req driver.Request, want driver.Reason) {
			refusal := b.try(req)
			if reason(refusal.err) != want {
				c.fatalf("%s: %v: must be refused with reason %q", what, refusal.err, want)
			}
			c.since(what, refusal, done)
		}
		refused("full", c.request(nameOf("x", slots), slots), driver.ReasonFull)
		c.want("release", a.release(grants...), driver.GrantOK)
		if !c.h.Features.AtomicTick {
			continue
		}
		at := thisSecond()
		held := a.mustAcquire(c.tick(nameOf("x", slots), slots, at, 1))
		c.since("a grant with a tick", held, done)
		c.want("release", a.release(held.grant), driver.GrantOK)
		refused("a tick that is taken", c.tick(nameOf("x", slots), slots, at, 1), driver.ReasonTickTaken)
		refused("a tick that is late", c.tick(nameOf("x", slots), slots, at.Add(-time.Hour), 1), driver.ReasonTickLate)
		refused("a tick ahead", c.tick(nameOf("x", slots), slots, at.Add(time.Hour), 1), driver.ReasonTickAhead)
	}
}

// successStays catches a store that forgets a success after a release without success, an
// extension, an expiry, a tick, or another number of slots.
func successStays(c *check) {
	a, b := c.host(), c.host()
	for _, slots := range []int{0, 1, 3} {
		done := a.succeed(a.mustAcquire(c.request(nameOf("x", slots), slots)).grant)
		c.pause()
		for range 3 {
			failed := a.mustAcquire(c.request(nameOf("x", slots), slots))
			c.want("extend", a.extend(c.long, failed.grant), driver.GrantOK)
			c.want("release without success", a.release(failed.grant), driver.GrantOK)
		}
		c.since("after releases without success", b.mustAcquire(c.request(nameOf("x", slots), slots)), done)
		if slots == 0 {
			continue
		}
		wider := b.mustAcquire(c.request(nameOf("x", slots), slots+2))
		c.since("after a grant of more slots", wider, done)
		c.since("after a grant of more slots was asked for", b.try(c.request(nameOf("x", slots), slots)), done)
	}
	kinds := []int{0, 1}
	var done [2]span
	var ending [2]attempt
	for i, slots := range kinds {
		done[i] = a.succeed(a.mustAcquire(c.request(nameOf("after", slots), slots)).grant)
		ending[i] = a.mustAcquire(c.brief(nameOf("after", slots), slots))
	}
	for i, slots := range kinds {
		name := nameOf("after", slots)
		next := b.waitForEnd(ending[i])
		c.since("after a lease that ended", next, done[i])
		if c.h.Features.AtomicTick {
			c.want("release", b.release(next.grant), driver.GrantOK)
			ticking := b.mustAcquire(c.tick(name, slots, thisSecond(), 1))
			c.want("release", b.release(ticking.grant), driver.GrantOK)
			c.since("after a tick", a.mustAcquire(c.request(name, slots)), done[i])
		}
	}
}

// successNotLost catches a store that records a success from a grant that was already lost. Another
// holder may have done the work.
func successNotLost(c *check) {
	a, b := c.host(), c.host()
	lost := func(what string, g driver.Grant) {
		for _, slot := range []int{g.Slot, driver.AnySlot} {
			g.Slot, g.Succeeded = slot, true
			c.want(what, a.release(g), driver.GrantLost)
		}
	}
	for _, slots := range []int{0, 1, 2} {
		released := a.mustAcquire(c.request(nameOf("x", slots), slots)).grant
		stranger := released
		stranger.Token = rand.Text()
		lost("release as succeeded by a stranger", stranger)
		c.want("release", a.release(released), driver.GrantOK)
		lost("release as succeeded of a grant that was released", released)
		next := b.mustAcquire(c.request(nameOf("x", slots), slots))
		c.never("after releases of lost grants", next)
		lost("release as succeeded of a grant whose slot another has", released)
		c.want("release", b.release(next.grant), driver.GrantOK)
		c.never("after releases of lost grants", b.mustAcquire(c.request(nameOf("x", slots), slots)))
	}
	kinds := []int{0, 1}
	var old [2]attempt
	for i, slots := range kinds {
		old[i] = a.mustAcquire(c.brief(nameOf("ends", slots), slots))
	}
	for i, slots := range kinds {
		next := b.waitForEnd(old[i])
		lost("release as succeeded of a grant that ended", old[i].grant)
		c.want("release", b.release(next.grant), driver.GrantOK)
		c.never("after a release of a grant that had ended", b.mustAcquire(c.request(nameOf("ends", slots), slots)))
	}
	lost("release as succeeded of a name that was never used", byToken(c.request("never used", 2)))
	c.never("of a name that was never used", b.mustAcquire(c.request("never used", 2)))
}

// successAnySlot catches a store that records a success only if the release named its slot.
func successAnySlot(c *check) {
	a, b := c.host(), c.host()
	for _, slots := range []int{0, 1, 3} {
		g := a.mustAcquire(c.request(nameOf("x", slots), slots)).grant
		c.pause()
		g.Slot = driver.AnySlot
		done := b.succeed(g)
		c.pause()
		c.since("after a release by AnySlot", b.mustAcquire(c.request(nameOf("x", slots), slots)), done)
	}
}

// successAskedAgain catches a repeated request whose answer lacks the success that the first answer
// had.
func successAskedAgain(c *check) {
	a, b := c.host(), c.host()
	for _, slots := range []int{0, 2} {
		done := a.succeed(a.mustAcquire(c.request(nameOf("x", slots), slots)).grant)
		c.pause()
		req := c.request(nameOf("x", slots), slots)
		for _, h := range []*host{a, b, a} {
			c.since("asked again", h.mustAcquire(req), done)
		}
	}
}

// successApart catches a success that counts for another name or for the mutex of the same name.
func successApart(c *check) {
	h := c.host()
	done := h.succeed(h.mustAcquire(c.request("x", 2)).grant)
	c.never("a mutex after a success of the semaphore", h.mustAcquire(c.request("x", 0)))
	c.never("another name", h.mustAcquire(c.request("y", 2)))
	c.never("a longer name", h.mustAcquire(c.request("xx", 2)))
	c.since("the semaphore itself", h.mustAcquire(c.request("x", 2)), done)
	mutex := h.mustAcquire(c.request("z", 0))
	h.succeed(mutex.grant)
	c.never("a semaphore after a success of the mutex", h.mustAcquire(c.request("z", 2)))
}

// successBatch catches a store that gives all grants of a call the same answer.
func successBatch(c *check) {
	a, b := c.host(), c.host()
	well := a.mustAcquire(c.request("well", 2)).grant
	failed := a.mustAcquire(c.request("failed", 2)).grant
	one, other := a.mustAcquire(c.request("both", 3)).grant, a.mustAcquire(c.request("both", 3)).grant
	mutex, lost := a.mustAcquire(c.request("mutex", 0)).grant, byToken(c.request("lost", 2))
	c.pause()
	well.Succeeded, other.Succeeded, mutex.Succeeded, lost.Succeeded = true, true, true, true
	done := span{sent: time.Now()}
	c.want("release", a.release(one, failed, mutex, lost, other, well), driver.GrantOK, driver.GrantOK, driver.GrantOK,
		driver.GrantLost, driver.GrantOK, driver.GrantOK)
	done.got = time.Now()
	c.pause()
	c.since("the one that succeeded", b.mustAcquire(c.request("well", 2)), done)
	c.since("the name of which one of two succeeded", b.mustAcquire(c.request("both", 3)), done)
	c.since("the mutex that succeeded", b.mustAcquire(c.request("mutex", 0)), done)
	c.never("the one that did not", b.mustAcquire(c.request("failed", 2)))
	c.never("the one that was lost", b.mustAcquire(c.request("lost", 2)))
}
