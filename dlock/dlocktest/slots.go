package dlocktest

import (
	"github.com/tickslot/tickslot/dlock/driver"
)

// slotNumbers test hosts that declare different numbers of slots, as happens in every rolling
// deploy.
var slotNumbers = []promise{
	{name: "N/hosts that disagree share slots", show: disagree},
	{name: "N/shrinking and growing hides no slot", show: shrinkAndGrow},
	{name: "N/info of the other number", given: needsInfo, show: infoOfSlots},
}

func needsInfo(f Features) string {
	if !f.Info {
		return "the store does not state Info"
	}
	return ""
}

// disagree catches a store whose keys contain the number of slots. Hosts with 3 and 5 would get 8.
func disagree(c *check) {
	for _, threeFirst := range []bool{true, false} {
		three, five := c.host(), c.host()
		name := "five-first"
		var grants []driver.Grant
		if threeFirst {
			name = "three-first"
			grants = append(three.fill(name, 3), five.fill(name, 5)...)
		} else {
			grants = append(five.fill(name, 5), three.fill(name, 3)...)
		}
		if len(grants) != 5 {
			c.errorf("%s: hosts with 3 and 5 slots got %d grants: must be 5 together", name, len(grants))
		}
		seen := make(map[int]bool)
		for _, g := range grants {
			if seen[g.Slot] {
				c.errorf("%s: slot %d was granted twice", name, g.Slot)
			}
			seen[g.Slot] = true
		}
		// A slot that both hosts know is free for the other after its release. A slot beyond 3 is
		// not.
		for _, g := range grants {
			c.want("release", five.release(g), driver.GrantOK)
			if g.Slot >= 3 {
				three.mustRefuse(c.request(name, 3), driver.ReasonFull)
				five.mustAcquire(c.request(name, 5))
			} else {
				three.mustAcquire(c.request(name, 3))
				five.mustRefuse(c.request(name, 5), driver.ReasonFull)
			}
		}
	}
}

// shrinkAndGrow catches a store that creates its slots when it first sees a name, or that loses
// track of them.
func shrinkAndGrow(c *check) {
	h := c.host()
	fill := func(slots, want int) []driver.Grant {
		grants := h.fill("s", slots)
		if len(grants) != want {
			c.fatalf("asked with %d slots, %d were granted: must be %d", slots, len(grants), want)
		}
		return grants
	}
	five := fill(5, 5)
	var last driver.Grant
	for _, g := range five {
		if g.Slot == 4 {
			last = g
		} else {
			c.want("release", h.release(g), driver.GrantOK)
		}
	}
	two := fill(2, 2)
	three := fill(5, 2) // slots 2 and 3, because 4 is still held
	seven := fill(7, 2)
	c.want("extend after the number has changed", h.extend(c.long, last, two[0], three[0], seven[1]), driver.GrantOK)
	c.want("release after the number has changed", h.release(append(append(append(two, three...), seven...), last)...),
		driver.GrantOK)
	fill(3, 3)
	fill(1, 0)
	fill(7, 4)
}

// infoOfSlots catches a store that does not tell hosts when they declare different numbers of
// slots.
func infoOfSlots(c *check) {
	three, five := c.host(), c.host()
	is := func(what string, got driver.Info, want int) {
		if got.DeclaredSlots != want {
			c.note(2, "%s: Info.DeclaredSlots %d: must be %d", what, got.DeclaredSlots, want)
		}
	}
	a := three.mustAcquire(c.request("s", 3))
	b := five.mustAcquire(c.request("s", 5))
	is("the first grant with 5, after one with 3", b.grant.Info, 3)
	is("an extension after a grant with 5", three.extend(c.long, a.grant)[0].Info, 5)
	five.fill("s", 5)
	is("a refusal after a grant with 5", three.mustRefuse(c.request("s", 3), driver.ReasonFull).Info, 5)
	is("a release after a grant with 5", three.release(a.grant)[0].Info, 5)
	is("a mutex", three.mustAcquire(c.request("m", 0)).grant.Info, 0)
	is("the second holder of a mutex", five.mustRefuse(c.request("m", 0), driver.ReasonFull).Info, 0)
}
