package dlocktest

import (
	"crypto/rand"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

var extending = []promise{
	{name: "extend/keeps the lease", show: extendKeeps},
	{name: "extend/only the token's own", show: extendForeign},
	{name: "extend/not after the end", show: extendAfterEnd},
	{name: "extend/one host for another's client", show: extendElsewhere},
}

var expiring = []promise{
	{name: "expiry/not before the TTL and not long after", show: endsOnTime},
	{name: "expiry/a crashed fleet's slots come back", show: crashedFleet},
	{name: "expiry/a lost grant touches nothing", show: expiredTouchesNothing},
	{name: "expiry/each lease has its own TTL", show: ownTTL},
}

// extendKeeps catches an extension that has no effect, or that counts from the old end or from the
// grant.
func extendKeeps(c *check) {
	for _, slots := range []int{0, 1} {
		c.keeps(c.brief("x", slots), func(h *host, a attempt) bool {
			return h.extend(a.req.TTL, a.grant)[0].Outcome == driver.GrantOK
		})
	}
}

// keeps checks that renew keeps a name's only slot far beyond its TTL, and that the lease ends one
// TTL after the last renewal. If the machine paused for too long, keeps tries again.
func (c *check) keeps(req driver.Request, renew func(*host, attempt) bool) {
	a, b := c.host(), c.host()
	const tries = 5
	for range tries {
		if c.keepsOnce(a, b, req, renew) {
			return
		}
		req.Token = rand.Text()
		// After a TTL the slot is free, so the failed try does not affect the next.
		time.Sleep(req.TTL + c.h.Slack)
	}
	c.t.Logf("%s: this machine stood still too often to tell", req.Name)
}

func (c *check) keepsOnce(a, b *host, req driver.Request, renew func(*host, attempt) bool) (told bool) {
	const enough = 5 // renewals, each a third of the TTL after the last: far beyond the first TTL
	held := a.mustAcquire(req)
	sent, got := held.sent, held.got // times of the last renewal
	for renewals := 0; ; time.Sleep(c.step()) {
		probe := b.try(c.request(req.Name, req.Slots))
		switch {
		case probe.err == nil && probe.got.Before(sent.Add(req.TTL)):
			c.fatalf("granted to another %v after renewal %d for %v", probe.got.Sub(sent), renewals, req.TTL)
		case probe.err == nil:
			b.release(probe.grant)
			return renewals == enough // false: the machine paused before the renewals were done
		case reason(probe.err) != driver.ReasonFull:
			c.fatalf("%v: must be refused as full", probe.err)
		case !probe.sent.Before(got.Add(req.TTL + c.h.Slack)):
			c.fatalf("still held %v after the last renewal for %v", probe.sent.Sub(got), req.TTL)
		}
		asked := time.Now()
		if renewals == enough || asked.Before(sent.Add(req.TTL/3)) {
			continue
		}
		ok := renew(a, held)
		answered := time.Now()
		switch {
		case ok:
			sent, got = asked, answered
			renewals++
		case answered.Before(sent.Add(req.TTL)):
			c.fatalf("lost %v after renewal %d for %v", answered.Sub(sent), renewals, req.TTL)
		default:
			return false
		}
	}
}

// extendForeign catches a store on which any caller can extend a lease. A host that had lost its
// slot would then keep the next holder's lease alive.
func extendForeign(c *check) {
	a, b := c.host(), c.host()
	for _, slots := range []int{0, 1} {
		held := a.mustAcquire(c.brief("x", slots))
		stranger := held.grant
		stranger.Token = rand.Text()
		c.want("extend by a stranger", b.extend(c.long, stranger), driver.GrantLost)
		until(held.endedBy(c))
		b.mustAcquire(c.request("x", slots)) // the stranger's long extension had no effect
		never := driver.Grant{Name: "never", Slots: slots, Token: rand.Text()}
		c.want("extend of a name that was never used", b.extend(c.long, never), driver.GrantLost)
	}
}

// extendAfterEnd catches a store that revives a lease after its end. The loss is final, because
// another holder may have worked meanwhile.
func extendAfterEnd(c *check) {
	a, b := c.host(), c.host()
	var held []attempt
	for _, slots := range []int{0, 1, 2} {
		held = append(held, a.mustAcquire(c.brief("x"+string(rune('0'+slots)), slots)))
	}
	until(held[2].endedBy(c))
	for _, h := range held {
		c.want("extend after the end", a.extend(c.long, h.grant), driver.GrantLost)
		c.want("extend after the end, again", a.extend(c.long, h.grant), driver.GrantLost)
		b.fillAny(h.req.Name, h.req.Slots)
		c.want("extend after the slot went to another", a.extend(c.long, h.grant), driver.GrantLost)
	}
}

// extendElsewhere catches a store that keeps its grants in the client. A grant belongs to its
// token.
func extendElsewhere(c *check) {
	a, b := c.host(), c.host()
	for _, slots := range []int{0, 3} {
		held := a.mustAcquire(c.request("x", slots))
		c.want("extend by another client", b.extend(c.long, held.grant), driver.GrantOK)
		c.want("release by another client", b.release(held.grant), driver.GrantOK)
		c.want("extend after another client's release", a.extend(c.long, held.grant), driver.GrantLost)
	}
}

// endsOnTime catches a wrong TTL: seconds instead of milliseconds, half its length, or one that
// counts from the wrong moment.
func endsOnTime(c *check) {
	a, b := c.host(), c.host()
	for _, slots := range []int{0, 1} {
		held := a.mustAcquire(c.brief("x", slots))
		next := b.waitForEnd(held)
		c.want("release", b.release(next.grant), driver.GrantOK)
	}
}

// waitForEnd sends requests until the store grants a lease's only slot to another holder. It checks
// that the grant is neither too early nor too late.
func (h *host) waitForEnd(held attempt) attempt {
	c := h.c
	for {
		probe := h.try(c.request(held.req.Name, held.req.Slots))
		switch {
		case probe.err == nil && probe.got.Before(held.heldUntil()):
			c.fatalf("a lease of %v was granted to another %v after it was asked for", held.req.TTL,
				probe.got.Sub(held.sent))
		case probe.err == nil:
			return probe
		case reason(probe.err) != driver.ReasonFull:
			c.fatalf("%v: must be refused as full", probe.err)
		case !probe.sent.Before(held.endedBy(c)):
			c.fatalf("a lease of %v was still held %v after it was granted", held.req.TTL, probe.sent.Sub(held.got))
		}
		time.Sleep(c.step())
	}
}

// crashedFleet catches slots that stay taken after their holders die.
func crashedFleet(c *check) {
	const slots = 5
	var held []attempt
	for range slots {
		held = append(held, c.host().mustAcquire(c.brief("s", slots)))
	}
	last := held[slots-1]
	next := c.host()
	free := 0
	for free < slots {
		probe := next.try(c.request("s", slots))
		if probe.err == nil {
			free++
			for _, h := range held {
				if h.grant.Slot == probe.grant.Slot && probe.got.Before(h.heldUntil()) {
					c.errorf("slot %d was granted again %v after it was asked for with a TTL of %v", h.grant.Slot,
						probe.got.Sub(h.sent), h.req.TTL)
				}
			}
			continue
		}
		if !probe.sent.Before(last.endedBy(c)) {
			c.fatalf("%d of %d slots of dead holders came back within their TTL", free, slots)
		}
		time.Sleep(c.step())
	}
	next.mustRefuse(c.request("s", slots), driver.ReasonFull)
}

// expiredTouchesNothing catches the classic mistake: a slow host wakes up and releases its
// successor's lock.
func expiredTouchesNothing(c *check) {
	a, b := c.host(), c.host()
	for _, slots := range []int{0, 1} {
		old := a.mustAcquire(c.brief("x", slots))
		next := b.waitForEnd(old)
		c.want("extend of an expired grant", a.extend(c.long, old.grant), driver.GrantLost)
		c.want("release of an expired grant", a.release(old.grant), driver.GrantLost)
		anySlot := old.grant
		anySlot.Slot = driver.AnySlot
		c.want("release of an expired grant with AnySlot", a.release(anySlot), driver.GrantLost)
		c.want("extend by the next holder", b.extend(c.long, next.grant), driver.GrantOK)
	}
}

// ownTTL catches a single expiry for all slots of a name: a short lease would end with its long
// neighbor, or the reverse.
func ownTTL(c *check) {
	a, b := c.host(), c.host()
	long := a.mustAcquire(c.request("s", 2))
	short := a.mustAcquire(c.brief("s", 2))
	next := b.waitForEnd(short)
	if next.grant.Slot != short.grant.Slot {
		c.errorf("the lease of slot %d ended, slot %d was granted", short.grant.Slot, next.grant.Slot)
	}
	c.want("extend of the long lease", a.extend(c.h.TTL, long.grant), driver.GrantOK) // which shortens it
	until(time.Now().Add(c.h.TTL + c.h.Slack))
	if again := b.mustAcquire(c.request("s", 2)); again.grant.Slot != long.grant.Slot {
		c.errorf("the lease of slot %d ended, slot %d was granted", long.grant.Slot, again.grant.Slot)
	}
}
