package dlocktest

import (
	"crypto/rand"
	"fmt"
	mrand "math/rand/v2"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

var batches = []promise{
	{name: "batch/a thousand grants, answered in order", show: thousand},
	{name: "batch/none at all", show: emptyBatch},
}

// thousand catches answers in another order than the grants, a truncated batch, and one bad grant
// that spoils the other results.
func thousand(c *check) {
	h := c.host()
	type member struct {
		grant driver.Grant
		held  bool
	}
	var all []member
	acquire := func(name string, slots int) driver.Grant {
		req := c.request(name, slots)
		req.TTL = c.long / 2
		return h.mustAcquire(req).grant
	}
	each := 60
	if c.long < time.Minute {
		each = 20 // few enough calls for a slow machine before the first lease ends
	}
	for s := range 4 {
		for i := range each {
			all = append(all, member{acquire(fmt.Sprintf("semaphore %d", s), each+s), i%5 > 0})
		}
	}
	for m := range each {
		all = append(all, member{acquire(fmt.Sprintf("mutex %d", m), 0), m%5 > 0})
	}
	var released []driver.Grant
	for _, m := range all {
		if !m.held {
			released = append(released, m.grant)
		}
	}
	c.want("release of every fifth", h.release(released...), driver.GrantOK)
	for i := 0; len(all) < 1000; i++ { // grants that the store does not know
		g := all[i%(5*each)].grant
		g.Token = rand.Text()
		if i%2 > 0 {
			g.Name = fmt.Sprintf("nobody's %d", i%7)
		}
		all = append(all, member{g, false})
	}
	mrand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })

	grants := make([]driver.Grant, len(all))
	for i, m := range all {
		grants[i] = m.grant
	}
	is := func(what string, results []driver.Result, still bool) {
		for i, m := range all {
			want := driver.GrantLost
			if m.held && still {
				want = driver.GrantOK
			}
			if results[i].Outcome != want {
				c.errorf("%s of a thousand: result %d, of %q slot %d, is %q: must be %q", what, i, m.grant.Name,
					m.grant.Slot, results[i].Outcome, want)
			}
		}
	}
	is("extend", h.extend(c.long, grants...), true)
	for _, m := range all {
		if m.held && m.grant.Name[0] == 'm' {
			if no := h.mustRefuse(c.request(m.grant.Name, 0), driver.ReasonFull); c.h.Features.Holders &&
				no.ExpiresIn <= c.long/2 {
				c.errorf("%q ends in %v, though it was extended for %v", m.grant.Name, no.ExpiresIn, c.long)
			}
		}
	}
	is("release", h.release(grants...), true)
	is("second release", h.release(grants...), false)
	h.fillAny("semaphore 0", each)
}

// emptyBatch catches a statement with an empty list of values.
func emptyBatch(c *check) {
	h := c.host()
	held := h.mustAcquire(c.request("m", 0))
	h.extend(c.long)
	h.release()
	c.want("extend", h.extend(c.long, held.grant), driver.GrantOK)
}
