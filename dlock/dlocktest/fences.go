package dlocktest

import (
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

var fences = []promise{
	{name: "fence/grows over release and expiry", given: needsFence, show: fencesGrow},
	{name: "fence/grows over a loss of data", given: needsFence, show: fencesOutliveData},
}

func needsFence(f Features) string {
	if !f.Fence {
		return "the store does not state Fence"
	}
	return ""
}

// fenceLog holds the highest fence per slot of a name.
type fenceLog map[int]driver.Fence

func (f fenceLog) add(c *check, how string, g driver.Grant) {
	if last, ok := f[g.Slot]; ok && g.Fence <= last {
		c.note(2, "%s: slot %d of %q has fence %d after %d: must grow", how, g.Slot, g.Name, g.Fence, last)
	}
	f[g.Slot] = g.Fence
}

// fencesGrow catches a counter that is lost with the lease, or that does not grow between quick
// grants.
func fencesGrow(c *check) {
	a, b := c.host(), c.host()
	for _, slots := range []int{0, 1, 3} {
		log := make(fenceLog)
		for range 20 { // several within one millisecond
			grants := a.fillAny("x", slots)
			for _, g := range grants {
				log.add(c, "after a release", g)
			}
			c.want("release", b.release(grants...), driver.GrantOK)
		}
		var last attempt
		for range max(1, slots) {
			last = a.mustAcquire(c.brief("x", slots))
			log.add(c, "after a release", last.grant)
		}
		until(last.endedBy(c))
		grants := b.fillAny("x", slots)
		for _, g := range grants {
			log.add(c, "after an expiry", g)
		}
		c.want("release", b.release(grants...), driver.GrantOK)
		if slots > 1 { // vary the number of slots
			for _, n := range []int{1, 5, 2, 3} {
				grants := a.fillAny("x", n)
				for _, g := range grants {
					log.add(c, "after another number of slots", g)
				}
				c.want("release", a.release(grants...), driver.GrantOK)
			}
		}
	}
}

// fencesOutliveData catches a counter without a clock. After a FLUSHALL, it would restart at 1.
// Guarded resources would refuse every new holder, or even accept an old one.
func fencesOutliveData(c *check) {
	if c.ns.LoseData == nil {
		c.skip("the harness does not tell how to lose the data")
	}
	h := c.host()
	logs := map[int]fenceLog{0: {}, 3: {}}
	for range 3 {
		for slots, log := range logs {
			for range 3 {
				grants := h.fillAny("x", slots)
				for _, g := range grants {
					log.add(c, "after a loss of data", g)
				}
				c.want("release", h.release(grants...), driver.GrantOK)
			}
		}
		time.Sleep(time.Millisecond) // fences grow with the store's time
		c.ns.LoseData()
		c.settled(h)
	}
}
