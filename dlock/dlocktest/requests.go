package dlocktest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

var requests = []promise{
	{name: "request/invalid ones are refused", show: invalidRequests},
	{name: "request/TTL above the bound", show: boundedTTL},
	{name: "context/ended before the call", show: endedContext},
	{name: "context/ends during the call", show: shortContext},
}

// invalidRequests catches a store that does not call Request.Validate. Invalid values would reach
// keys, scripts and statements.
func invalidRequests(c *check) {
	h := c.host()
	refuse := func(what string, req driver.Request) {
		a := h.try(req)
		if a.err == nil {
			c.errorf("%s: granted", what)
		}
		if errors.Is(a.err, driver.ErrNotAcquired) {
			c.errorf("%s: %v: is a mistake of the caller, not a refusal", what, a.err)
		}
	}
	for _, name := range badNames() {
		refuse("name "+strings.ToValidUTF8(name, "?"), c.request(name, 0))
		refuse("name "+strings.ToValidUTF8(name, "?"), c.request(name, 1))
	}
	for _, token := range []string{"", "a b", "a\x00", "a'b", "a:b", "a\n", "ä", strings.Repeat("t", 65)} {
		req := c.request("x", 1)
		req.Token = token
		refuse("token "+token, req)
	}
	for _, slots := range []int{-1, driver.MaxSlots + 1} {
		refuse("slots", c.request("x", slots))
	}
	for _, ttl := range []time.Duration{0, -time.Second, time.Microsecond} {
		req := c.request("x", 1)
		req.TTL = ttl
		refuse("TTL "+ttl.String(), req)
	}
	refuse("tick at the zero time", c.tick("x", 1, time.Time{}, 1))
	refuse("tick with no starts", c.tick("x", 1, thisSecond(), 0))
	refuse("tick with less than no starts", c.tick("x", 1, thisSecond(), -1))
	early := c.tick("x", 1, thisSecond(), 1)
	early.Tick.MissedAt = early.Tick.At.Add(-time.Microsecond)
	refuse("tick that was missed before its instant", early)

	h.fillAny("x", 1) // nothing of the invalid requests was granted
	req := c.request("longest token", 1)
	req.Token = strings.Repeat("t", 64)
	h.mustAcquire(req)
	h.mustAcquire(c.request("most slots", driver.MaxSlots))
}

// boundedTTL catches a maximum TTL that is stated but not enforced. On Redis, a lease longer than
// QuarantineTTL would outlive the quarantine.
func boundedTTL(c *check) {
	h := c.host()
	bounder := h.caps().TTLBounder
	if bounder == nil {
		c.skip("the store has no bound")
	}
	most := bounder.MaxTTL()
	if most > 365*24*time.Hour {
		c.skip("the store has no bound to speak of")
	}
	req := c.request("m", 0)
	req.TTL = most + time.Millisecond
	if a := h.try(req); a.err == nil || errors.Is(a.err, driver.ErrNotAcquired) {
		c.errorf("a TTL of %v, above the bound of %v: %v: must be an error", req.TTL, most, a.err)
	}
	req.TTL = most
	held := h.mustAcquire(req)
	ctx, cancel := callContext()
	defer cancel()
	if results, err := h.store.Extend(ctx, most+time.Millisecond, held.grant); err == nil &&
		results[0].Outcome == driver.GrantOK {
		c.errorf("extended for %v, above the bound of %v", most+time.Millisecond, most)
	}
}

// endedContext catches a call that continues after its caller has left, and a refusal from a store
// that was not asked, which is worse.
func endedContext(c *check) {
	h := c.host()
	held := h.mustAcquire(c.request("held", 0))
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	expired, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	for what, ctx := range map[string]context.Context{"canceled": canceled, "expired": expired} {
		before := time.Now()
		for _, name := range []string{"free", "held"} {
			_, err := h.store.TryAcquire(ctx, c.request(name, 0))
			if err == nil || errors.Is(err, driver.ErrNotAcquired) {
				c.errorf("acquire of a lock that is %s, with a context that is %s: %v: must be an error, and not "+
					"a refusal", name, what, err)
			}
		}
		if _, err := h.store.Extend(ctx, c.long, held.grant); err == nil {
			c.errorf("extend with a context that is %s: must be an error", what)
		}
		if _, err := h.store.Release(ctx, held.grant); err == nil {
			c.errorf("release with a context that is %s: must be an error", what)
		}
		if took := time.Since(before); took > callTimeout/2 {
			c.errorf("four calls with a context that is %s took %v", what, took)
		}
	}
	// The client must still work.
	h.mustAcquire(c.request("after", 0))
}

// shortContext catches a client that breaks after a cancelled call, or that reports the
// cancellation as a refusal.
func shortContext(c *check) {
	h := c.host()
	for i := range 40 {
		// Each request has a different name, because a request that was cut off may still arrive.
		req := c.request(fmt.Sprintf("free %d", i), 0)
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*20*time.Microsecond)
		before := time.Now()
		_, err := h.store.TryAcquire(ctx, req)
		cancel()
		if errors.Is(err, driver.ErrNotAcquired) {
			c.errorf("nobody has the lock: %v", err)
		}
		if took := time.Since(before); took > callTimeout/2 {
			c.errorf("a call with a context of %d µs took %v", i*20, took)
		}
		if outcome := h.release(byToken(req))[0].Outcome; err == nil && outcome != driver.GrantOK {
			c.errorf("granted, and its release is %q", outcome)
		}
	}
	h.mustAcquire(c.request("after", 0))
}
