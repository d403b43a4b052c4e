package dlocktest

import (
	"crypto/rand"
	"fmt"

	"github.com/tickslot/tickslot/dlock/driver"
)

var releasing = []promise{
	{name: "release/frees at once", show: freesAtOnce},
	{name: "release/twice frees nothing twice", show: releaseTwice},
	{name: "release/only the token's own", show: releaseForeign},
	{name: "release/by token with AnySlot", show: releaseAnySlot},
}

// freesAtOnce catches a release that only shortens the lease or that other hosts do not see.
func freesAtOnce(c *check) {
	a, b := c.host(), c.host()
	for _, slots := range []int{0, 3} {
		for range 5 {
			grants := a.fillAny("x", slots)
			c.want("release", b.release(grants[0]), driver.GrantOK) // any client can release the grant
			again := b.mustAcquire(c.request("x", slots))
			if again.grant.Slot != grants[0].Slot {
				c.errorf("slot %d was released, slot %d was granted", grants[0].Slot, again.grant.Slot)
			}
			c.want("release", a.release(append(grants[1:], again.grant)...), driver.GrantOK)
		}
	}
}

// fillAny takes every slot of a semaphore, or the mutex.
func (h *host) fillAny(name string, slots int) []driver.Grant {
	if slots == 0 {
		return []driver.Grant{h.mustAcquire(h.c.request(name, 0)).grant}
	}
	grants := h.fill(name, slots)
	if len(grants) != slots {
		h.c.fatalf("%q: %d grants of %d slots, all free", name, len(grants), slots)
	}
	return grants
}

// releaseTwice catches a release that does not compare tokens. The second release would then end
// the next holder's lease.
func releaseTwice(c *check) {
	a, b := c.host(), c.host()
	for _, slots := range []int{0, 1, 3} {
		grants := a.fillAny("x", slots)
		c.want("release", a.release(grants...), driver.GrantOK)
		c.want("second release", a.release(grants...), driver.GrantLost)
		next := b.fillAny("x", slots)
		c.want("release after the slot went to another", a.release(grants...), driver.GrantLost)
		for i := range grants {
			grants[i].Slot = driver.AnySlot
		}
		c.want("release with AnySlot after the slot went to another", a.release(grants...), driver.GrantLost)
		a.mustRefuse(c.request("x", slots), driver.ReasonFull)
		c.want("the next holder's extend", b.extend(c.long, next...), driver.GrantOK)
		c.want("the next holder's release", b.release(next...), driver.GrantOK)
	}
}

// releaseForeign catches a store on which any caller can release a lease.
func releaseForeign(c *check) {
	a, b := c.host(), c.host()
	for _, slots := range []int{0, 2} {
		grants := a.fillAny("x", slots)
		for _, g := range grants {
			stranger := g
			stranger.Token = rand.Text()
			c.want("release by a stranger", b.release(stranger), driver.GrantLost)
			stranger.Slot = driver.AnySlot
			c.want("release by a stranger with AnySlot", b.release(stranger), driver.GrantLost)
			// Part of a token is not accepted, and neither is the token in another case.
			for _, token := range []string{g.Token[:len(g.Token)-1], g.Token + "x", swapCase(g.Token)} {
				stranger.Token = token
				c.want("release by a token that is almost right", b.release(stranger), driver.GrantLost)
			}
			// An empty token is the caller's mistake. The store must return an error or GrantLost,
			// and must not release.
			stranger.Token = ""
			ctx, cancel := callContext()
			results, err := b.store.Release(ctx, stranger)
			cancel()
			if err == nil && (len(results) != 1 || results[0].Outcome == driver.GrantOK) {
				c.errorf("release without a token: %v", results)
			}
		}
		b.mustRefuse(c.request("x", slots), driver.ReasonFull)
		c.want("extend by the holder", a.extend(c.long, grants...), driver.GrantOK)
	}
}

func swapCase(s string) string {
	b := []byte(s)
	for i, r := range b {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z':
			b[i] = r ^ 0x20
		}
	}
	return string(b)
}

// releaseAnySlot catches a store that finds a grant only by its slot. After a lost reply to an
// acquire, the caller does not know the slot.
func releaseAnySlot(c *check) {
	a, b := c.host(), c.host()
	for _, slots := range []int{0, 1, 5} {
		name := fmt.Sprintf("x-%d", slots)
		for _, g := range a.fillAny(name, slots) {
			want := g.Slot
			g.Slot = driver.AnySlot
			c.want("release with AnySlot", b.release(g), driver.GrantOK)
			c.want("second release with AnySlot", b.release(g), driver.GrantLost)
			if got := b.mustAcquire(c.request(name, slots)); got.grant.Slot != want {
				c.errorf("released slot %d by its token, slot %d became free", want, got.grant.Slot)
			}
		}
	}
	for _, slots := range []int{0, 3} {
		c.want("release of a name that was never used", a.release(byToken(c.request("never used", slots))),
			driver.GrantLost)
	}
}
