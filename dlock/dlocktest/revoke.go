package dlocktest

import (
	"errors"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

func (h *host) revoke(g driver.Grant, by driver.Cause) error {
	ctx, cancel := callContext()
	defer cancel()
	return h.controller().Revoke(ctx, g.Name, g.Slot, g.Fence, by)
}

func revokeTold(c *check) {
	a, b := c.host(), c.host()
	grants := a.fill("x", 3)
	mutex := a.mustAcquire(c.request("x", 0)).grant
	if err := b.revoke(grants[1], ann); err != nil {
		c.fatalf("revoke: %v", err)
	}
	for range 2 {
		results := a.extend(c.long, grants[0], grants[1], mutex, grants[2])
		c.want("extend", results, driver.GrantOK, driver.GrantLost, driver.GrantOK, driver.GrantOK)
		if r := results[1].RevokedBy; r == nil || *r != ann {
			c.errorf("revoked %+v: must be %+v", r, ann)
		}
		if results[0].RevokedBy != nil || results[3].RevokedBy != nil {
			c.errorf("the others are told that they were revoked, too")
		}
	}
	if err := b.revoke(grants[1], driver.Cause{By: "bob"}); err != nil {
		c.errorf("revoked a second time: %v", err)
	}
	if r := a.extend(c.long, grants[1])[0].RevokedBy; r == nil || *r != ann {
		c.errorf("revoked %+v: must be who was first, %+v", r, ann)
	}
}

// revokeKeepsSlot catches a revocation that frees the slot while the holder may still be working.
func revokeKeepsSlot(c *check) {
	a, b := c.host(), c.host()
	g := a.mustAcquire(c.request("x", 1)).grant
	if err := b.revoke(g, ann); err != nil {
		c.fatalf("revoke: %v", err)
	}
	b.mustRefuse(c.request("x", 1), driver.ReasonFull)
	a.extend(c.long, g)
	b.mustRefuse(c.request("x", 1), driver.ReasonFull)
	c.want("release by the holder", a.release(g), driver.GrantOK)
	next := b.mustAcquire(c.request("x", 1))
	c.want("a second release", a.release(g), driver.GrantLost)
	results := b.extend(c.long, next.grant)
	c.want("extend by the next holder", results, driver.GrantOK)
	if results[0].RevokedBy != nil {
		c.errorf("the next holder is revoked, too")
	}
}

// revokeEnds catches a revoked lease that lasts longer because its holder keeps extending it, or
// that ends early. If the holder repeats its request after a lost reply, the lease must last one
// TTL from then on, because the holder trusts it for that long.
func revokeEnds(c *check) {
	for name, again := range map[string]bool{"x": false, "again": true} {
		c.revokeEnds(name, again)
	}
}

func (c *check) revokeEnds(name string, again bool) {
	a, b := c.host(), c.host()
	req := c.brief(name, 1)
	g := a.mustAcquire(req)
	if err := b.revoke(g.grant, ann); err != nil {
		if time.Now().Before(g.heldUntil()) {
			c.fatalf("revoke: %v", err)
		}
		c.skip("the lease had ended before it could be revoked")
	}
	if again {
		until(g.sent.Add(c.h.TTL / 2))
		repeated := a.try(req)
		switch {
		case !repeated.got.Before(g.heldUntil()):
			c.skip("the lease had ended before it could be asked for again")
		case repeated.err == nil && repeated.grant.Fence != g.grant.Fence:
			c.errorf("asked again for a revoked lease: granted another, fence %d after %d", repeated.grant.Fence,
				g.grant.Fence)
		case repeated.err == nil:
			g = repeated
		}
	}
	for time.Now().Before(g.heldUntil()) {
		a.extend(c.long, g.grant)
		if probe := b.try(c.request(name, 1)); probe.err == nil && probe.got.Before(g.heldUntil()) {
			c.fatalf("granted to another %v after a revoked lease was granted for %v (asked for again: %t)",
				probe.got.Sub(g.sent), c.h.TTL, again)
		} else if probe.err == nil {
			b.release(probe.grant)
		}
		time.Sleep(c.step())
	}
	until(g.endedBy(c))
	next := b.mustAcquire(c.request(name, 1))
	c.want("release of the revoked one", a.release(g.grant), driver.GrantLost)
	c.want("extend by the next holder", b.extend(c.long, next.grant), driver.GrantOK)
}

func revokeFence(c *check) {
	a, b := c.host(), c.host()
	no := func(what string, g driver.Grant) {
		if err := b.revoke(g, ann); !errors.Is(err, driver.ErrNotHeld) {
			c.errorf("revoke %s: %v: must be ErrNotHeld", what, err)
		}
	}
	g := a.mustAcquire(c.request("x", 2)).grant
	older, other, none := g, g, g
	older.Fence--
	other.Slot = 1
	none.Name = "y"
	no("an older lease", older)
	no("a slot that is free", other)
	no("a name that nobody has", none)
	other.Slot = driver.MaxSlots + 5
	no("a slot that cannot be", other)
	c.want("extend", a.extend(c.long, g), driver.GrantOK)
	c.want("release", a.release(g), driver.GrantOK)
	no("a lease that was released", g)
	short := a.mustAcquire(c.brief("x", 2))
	until(short.endedBy(c))
	no("a lease that has ended", short.grant)
}
