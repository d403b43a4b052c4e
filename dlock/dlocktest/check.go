package dlocktest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/testkit"
)

// callTimeout limits every call to the store. Only a store that hangs takes this long.
const callTimeout = 10 * time.Second

// A check tests one promise in one namespace. It collects findings instead of failing a test, so
// that the suite itself can be tested on broken stores.
type check struct {
	t  testing.TB
	h  Harness
	ns Namespace

	// long is the TTL for leases that must not end during a check.
	long time.Duration

	mu      sync.Mutex
	broken  []string
	skipped string
}

// giveUp is the panic value that ends a check early.
type giveUp struct{}

// errorf records a broken promise. It is safe for concurrent use.
func (c *check) errorf(format string, args ...any) { c.note(2, format, args...) }

// fatalf records a broken promise and ends the check. Only the check's own goroutine may call it.
func (c *check) fatalf(format string, args ...any) {
	c.note(2, format, args...)
	panic(giveUp{})
}

func (c *check) note(skip int, format string, args ...any) {
	_, file, line, _ := runtime.Caller(skip)
	c.mu.Lock()
	defer c.mu.Unlock()
	const enough = 20
	if len(c.broken) < enough {
		c.broken = append(c.broken, fmt.Sprintf("%s:%d: ", filepath.Base(file), line)+fmt.Sprintf(format, args...))
	}
}

// skip ends the check without a finding.
func (c *check) skip(why string) {
	c.skipped = why
	panic(giveUp{})
}

// fresh opens a new namespace and waits until the store grants. A store that was just started may
// refuse for a while.
func (c *check) fresh() {
	c.ns = c.h.New(c.t)
	if c.ns.Open == nil {
		c.fatalf("Harness.New returned a Namespace without Open")
	}
	h := c.host()
	c.long = 10 * time.Minute // on a busy machine, a check's calls may take more than a minute
	if b := h.caps().TTLBounder; b != nil {
		c.long = min(c.long, b.MaxTTL())
	}
	c.settled(h)
}

// settled waits until the store no longer answers ReasonQuarantine.
func (c *check) settled(h *host) {
	var got attempt
	err := testkit.Poll(30*time.Second, "the quarantine ends", func() bool {
		got = h.try(c.request("warm-up", 0))
		no, refused := errors.AsType[*driver.NotAcquiredError](got.err)
		if !refused || no.Reason != driver.ReasonQuarantine {
			return true
		}
		time.Sleep(min(no.ExpiresIn, time.Second)) // many checks wait at the same time and could overload the store
		return false
	})
	if err != nil || got.err != nil {
		c.fatalf("the store granted nothing at all: %v", got.err)
	}
	h.release(got.grant)
}

// host opens another client of the namespace.
func (c *check) host() *host { return &host{c: c, store: c.ns.Open()} }

// request returns a request for a long lease, with a new token and holder.
func (c *check) request(name string, slots int) driver.Request {
	return driver.Request{
		Name: name, Slots: slots, TTL: c.long, Token: rand.Text(),
		Holder: driver.Holder{Host: "host", PID: 1, ID: rand.Text()[:8]},
	}
}

// brief returns a request for a lease that is short enough to wait for.
func (c *check) brief(name string, slots int) driver.Request {
	req := c.request(name, slots)
	req.TTL = c.h.TTL
	return req
}

// whileHeld calls do, which makes calls that must come before a brief lease ends. If a busy machine
// was too slow, do returns false, and whileHeld repeats it with twice the TTL.
func (c *check) whileHeld(do func(ttl time.Duration) (inTime bool)) {
	for ttl := c.h.TTL; !do(ttl); ttl *= 2 {
		if 4*ttl > c.long {
			c.fatalf("a few calls took longer than a lease of %v", ttl)
		}
	}
}

// step returns the pause between requests while a check waits for a lease to end.
func (c *check) step() time.Duration { return max(c.h.TTL/50, time.Millisecond) }

// until sleeps until t. With a real clock it may return later, but never earlier.
func until(t time.Time) { time.Sleep(time.Until(t)) }

// A host is one client of the store.
type host struct {
	c     *check
	store driver.Store
}

func (h *host) caps() driver.Capabilities { return driver.CapabilitiesOf(h.store) }

// An attempt is an answer to a request. The store acted at some time between sent and got.
type attempt struct {
	req       driver.Request
	grant     driver.Grant
	err       error
	sent, got time.Time
}

// heldUntil returns the earliest correct end of the lease. A grant to another holder before that
// time shows that the lease ended too early.
func (a attempt) heldUntil() time.Time { return a.sent.Add(a.req.TTL) }

// endedBy returns when the lease must have ended if it was not extended.
func (a attempt) endedBy(c *check) time.Time { return a.got.Add(a.req.TTL + c.h.Slack) }

// byToken returns the known parts of a request's grant after a lost reply.
func byToken(req driver.Request) driver.Grant {
	return driver.Grant{Name: req.Name, Slots: req.Slots, Slot: driver.AnySlot, Token: req.Token}
}

func callContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), callTimeout)
}

// try sends a request and returns the answer.
func (h *host) try(req driver.Request) attempt {
	ctx, cancel := callContext()
	defer cancel()
	a := attempt{req: req, sent: time.Now()}
	a.grant, a.err = h.store.TryAcquire(ctx, req)
	a.got = time.Now()
	if a.err == nil && len(a.grant.Shared) != len(req.Shared) {
		a.err = fmt.Errorf("asked for %d further semaphores, was granted %d", len(req.Shared), len(a.grant.Shared))
		h.c.errorf("%v", a.err)
	}
	if a.err == nil {
		h.c.plausible(req, a.grant)
	}
	switch info := a.info(); {
	case !h.c.h.Features.LastSuccess && info.SuccessAge != 0:
		h.c.errorf("a success %v ago, though the store does not state that it remembers any: must be 0",
			info.SuccessAge)
	case info.SuccessAge < 0:
		h.c.errorf("a success %v ago: must be 0, or at least 1µs", info.SuccessAge)
	}
	return a
}

// plausible checks what must hold for every grant.
func (c *check) plausible(req driver.Request, g driver.Grant) {
	if g.Name != req.Name || g.Slots != req.Slots || g.Token != req.Token {
		c.errorf("asked for %q of %d slots with token %q, was granted %q of %d with token %q", req.Name, req.Slots,
			req.Token, g.Name, g.Slots, g.Token)
	}
	if g.Slot < 0 || g.Slot >= max(1, req.Slots, g.Info.SlotLimit) {
		c.errorf("asked for one of %d slots of %q, was granted slot %d", req.Slots, req.Name, g.Slot)
	}
	for i, l := range req.Shared {
		part := req
		part.Name, part.Slots, part.Shared = l.Name, l.Slots, nil
		c.plausible(part, g.Shared[i])
	}
	switch {
	case c.h.Features.Fence && g.Fence <= 0:
		c.errorf("a fence of %d, though the store states that it gives fences: they must be positive", g.Fence)
	case !c.h.Features.Fence && g.Fence != 0:
		c.errorf("a fence of %d, though the store does not state that it gives fences: must be 0", g.Fence)
	}
	if g.PreviousExpired && !c.h.Features.PreviousExpired {
		c.errorf("PreviousExpired, though the store does not state that it can tell: must be false")
	}
}

// mustAcquire sends a request that the store must grant.
func (h *host) mustAcquire(req driver.Request) attempt {
	a := h.try(req)
	if a.err != nil {
		h.c.note(2, "%q of %d slots was not granted: %v", req.Name, req.Slots, a.err)
		panic(giveUp{})
	}
	return a
}

// mustRefuse sends a request that the store must refuse for the given reason.
func (h *host) mustRefuse(req driver.Request, want driver.Reason) *driver.NotAcquiredError {
	a := h.try(req)
	if a.err == nil {
		h.c.note(2, "%q of %d slots was granted slot %d: must be refused with reason %q", req.Name, req.Slots,
			a.grant.Slot, want)
		panic(giveUp{})
	}
	no, ok := errors.AsType[*driver.NotAcquiredError](a.err)
	if !ok || no.Reason != want {
		h.c.note(2, "%q of %d slots: error %q: must be a *NotAcquiredError with reason %q", req.Name, req.Slots, a.err,
			want)
		panic(giveUp{})
	}
	if no.Name != req.Name || no.Slots != req.Slots {
		h.c.note(2, "the refusal of %q with %d slots speaks of %q with %d", req.Name, req.Slots, no.Name, no.Slots)
	}
	if !errors.Is(a.err, driver.ErrNotAcquired) {
		h.c.note(2, "a refusal that errors.Is(err, ErrNotAcquired) does not match")
	}
	return no
}

// extend extends the grants and returns one result per grant. It records an error if the call
// fails.
func (h *host) extend(ttl time.Duration, grants ...driver.Grant) []driver.Result {
	ctx, cancel := callContext()
	defer cancel()
	results, err := h.store.Extend(ctx, ttl, grants...)
	return h.c.answered(OpExtend, grants, results, err)
}

// release releases the grants and returns one result per grant.
func (h *host) release(grants ...driver.Grant) []driver.Result {
	ctx, cancel := callContext()
	defer cancel()
	results, err := h.store.Release(ctx, grants...)
	return h.c.answered(OpRelease, grants, results, err)
}

func (c *check) answered(op Op, grants []driver.Grant, results []driver.Result, err error) []driver.Result {
	if err != nil {
		c.note(3, "%s: %v", op, err)
		panic(giveUp{})
	}
	if len(results) != len(grants) {
		c.note(3, "%s: %d results for %d grants", op, len(results), len(grants))
		panic(giveUp{})
	}
	for i, r := range results {
		if r.Outcome == driver.GrantUnknown {
			c.note(3, "%s: the outcome of grant %d is unknown, error %v: must be known when the store is well", op, i,
				r.Err)
		}
	}
	return results
}

// want checks the outcomes in results.
func (c *check) want(what string, results []driver.Result, outcomes ...driver.GrantOutcome) {
	for i, r := range results {
		if want := outcomes[min(i, len(outcomes)-1)]; r.Outcome != want {
			c.note(2, "%s: result %d is %q: must be %q", what, i, r.Outcome, want)
		}
	}
}

// fill takes slots until the store refuses, and returns the grants.
func (h *host) fill(name string, slots int) []driver.Grant {
	var grants []driver.Grant
	for range 2*slots + 2 {
		a := h.try(h.c.request(name, slots))
		if a.err != nil {
			if reason(a.err) != driver.ReasonFull {
				h.c.fatalf("%q of %d slots: %v: must be refused as full", name, slots, a.err)
			}
			return grants
		}
		grants = append(grants, a.grant)
	}
	h.c.fatalf("%q: %d grants of %d slots", name, len(grants), slots)
	return nil
}

// reason returns the reason of a refusal, or "" for any other error.
func reason(err error) driver.Reason {
	if no, ok := errors.AsType[*driver.NotAcquiredError](err); ok {
		return no.Reason
	}
	return ""
}
