package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// leases records the leases that hooks report.
type leases struct {
	mu       sync.Mutex
	order    []string
	acquired []dlock.LeaseAcquired
	lost     []dlock.LeaseEnded
	released []dlock.LeaseEnded
}

func (l *leases) hooks() dlock.Hooks {
	return dlock.Hooks{
		Acquired: func(e dlock.LeaseAcquired) {
			l.note("acquired "+e.Name, func() { l.acquired = append(l.acquired, e) })
		},
		Lost: func(e dlock.LeaseEnded) { l.note("lost "+e.Name, func() { l.lost = append(l.lost, e) }) },
		Released: func(e dlock.LeaseEnded) {
			l.note("released "+e.Name, func() { l.released = append(l.released, e) })
		},
	}
}

func (l *leases) note(what string, keep func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.order = append(l.order, what)
	keep()
}

// told returns the reports since its last call.
func (l *leases) told() string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	text := strings.Join(l.order, ", ")
	l.order = nil
	return text
}

// Hooks report each lease twice: once when it is acquired, with the whole wait for it, and once
// when it is released, with how long it was held. They do not report refusals.
//
// Fails when wait restarts with each attempt, add reports a lease that it refuses, or Release
// reports twice.
func TestHooksAreToldOfLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		var x leases
		h := newHost(t, store, dlock.SessionOptions{TTL: ttl, StoreTimeout: timeout, Hooks: x.hooks()})
		other := newHost(t, store, dlock.SessionOptions{})
		first := other.take(t, "job", 1)
		if _, err := h.Semaphore("job", 1).TryAcquire(bg); !errors.Is(err, dlock.ErrNotAcquired) {
			t.Fatal(err)
		}
		if got := x.told(); got != "" {
			t.Errorf("of a refusal: %s", got)
		}
		began := time.Now()
		other.faulty.Inject(down) // so the first holder never releases it
		lease, err := h.Semaphore("job", 1).Acquire(bg)
		if err != nil {
			t.Fatal(err)
		}
		waited := time.Since(began)
		advance(time.Minute)
		if err := lease.Release(bg); err != nil {
			t.Error(err)
		}
		if err := lease.Release(bg); err != nil {
			t.Error(err)
		}
		if got := x.told(); got != "acquired job, released job" {
			t.Fatal(got)
		}
		if a := x.acquired[0]; waited < ttl/2 || a != (dlock.LeaseAcquired{Name: "job", Fence: lease.Fence(),
			Wait: waited, PreviousExpired: true}) {
			t.Errorf("acquired %+v after %v", a, waited)
		}
		if e := x.released[0]; e != (dlock.LeaseEnded{Name: "job", Fence: lease.Fence(), HeldFor: time.Minute}) {
			t.Errorf("released %+v", e)
		}
		lease = h.take(t, "two", 2)
		h.faulty.Inject(down)
		if err := lease.Release(bg); err == nil {
			t.Error("released though the store is down")
		}
		h.faulty.Heal()
		advance(time.Minute)
		if got := x.told(); got != "acquired two, released two" {
			t.Fatal(got)
		}
		if _, ok := x.released[1].Err.(*dlock.StoreError); !ok {
			t.Errorf("released %+v", x.released[1])
		}
		other.faulty.Heal()
		if err := first.Release(bg); !errors.Is(err, dlock.ErrLost) {
			t.Error(err)
		}
		if h.DroppedEvents() != 0 {
			t.Errorf("%d events were dropped", h.DroppedEvents())
		}
	})
}

// A lost lease is reported once, with an error that says how it was lost. A later release of it is
// not reported.
//
// Fails when check or renew ends a lease without a report, or Release takes a loss for a release.
func TestHooksAreToldHowALeaseIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		lose   func(h host, l *dlock.Lease)
		silent bool
		by     string
		held   time.Duration
	}{
		"silence": {lose: func(h host, _ *dlock.Lease) { h.faulty.Inject(down) }, silent: true, held: trusted},
		"stopped": {lose: func(_ host, l *dlock.Lease) { l.StopRenewing() }, held: trusted},
		"revoked": {lose: func(h host, l *dlock.Lease) {
			c := driver.CapabilitiesOf(h.store).Controller
			if err := c.Revoke(bg, "job", l.Slot(), l.Fence(), driver.Cause{By: "me"}); err != nil {
				t.Error(err)
			}
		}, by: "me", held: beat},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var x leases
				h := newHost(t, memlock.New(), dlock.SessionOptions{TTL: ttl, StoreTimeout: timeout, Hooks: x.hooks()})
				lease := h.take(t, "job", 2)
				c.lose(h, lease)
				advance(2 * ttl)
				h.faulty.Heal()
				if err := lease.Release(bg); !errors.Is(err, dlock.ErrLost) {
					t.Errorf("released: %v", err)
				}
				if got := x.told(); got != "acquired job, lost job" {
					t.Fatal(got)
				}
				e := x.lost[0]
				lost, ok := e.Err.(*dlock.LostError)
				if !ok || e.HeldFor != c.held || e.Fence != lease.Fence() || lost.Silent != c.silent ||
					(lost.RevokedBy != nil) != (c.by != "") {
					t.Errorf("%+v, %v", e, e.Err)
				}
			})
		})
	}
}

// A hook that panics, exits, blocks or calls the session delays neither renewals nor callers. Close
// returns in time and names a hook that has not returned.
//
// Fails when a hook is called on the goroutine of the heartbeat or the caller, with mu held, or
// when Close waits forever.
func TestLeaseHooksHarmNobody(t *testing.T) {
	for name, c := range map[string]struct {
		hook   func(h host, lost bool)
		stuck  bool
		within time.Duration // maximum duration of Close
	}{
		"panics": {hook: func(host, bool) { panic("a hook") }},
		"exits":  {hook: func(host, bool) { runtime.Goexit() }},
		"slow":   {hook: func(host, bool) { time.Sleep(timeout / 2) }, within: 2 * timeout},
		"stuck":  {hook: func(host, bool) { time.Sleep(24 * time.Hour) }, stuck: true, within: timeout},
		"calls": {hook: func(h host, lost bool) {
			if lost {
				lease, err := h.Mutex("more").TryAcquire(bg)
				if err == nil {
					lease.Release(bg)
				}
			}
		}},
		"closes": {hook: func(h host, lost bool) {
			if lost {
				h.Close(bg)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				var h host
				h = newHost(t, store, dlock.SessionOptions{TTL: ttl, StoreTimeout: timeout, Hooks: dlock.Hooks{
					Acquired: func(dlock.LeaseAcquired) { c.hook(h, false) },
					Lost:     func(dlock.LeaseEnded) { c.hook(h, true) },
					Released: func(dlock.LeaseEnded) { c.hook(h, false) },
				}})
				began := time.Now()
				stays, goes := h.take(t, "stays", 1), h.take(t, "goes", 1)
				for range 5 {
					if err := h.take(t, "short", 1).Release(bg); err != nil {
						t.Error(err)
					}
				}
				if took := time.Since(began); took > 0 {
					t.Errorf("callers waited for %v", took)
				}
				advance(ttl)
				if err := store.Revoke(bg, "goes", 0, goes.Fence(), driver.Cause{By: "me"}); err != nil {
					t.Fatal(err)
				}
				advance(beat)
				wantLost(t, goes)
				if name == "closes" {
					advance(2 * timeout) // the longest that Close may wait
				} else {
					advance(10 * ttl)
					wantHeld(t, stays)
				}
				if err := stays.Release(bg); err != nil {
					t.Error(err)
				}
				began = time.Now()
				err := h.Close(bg)
				if took := time.Since(began); took > c.within {
					t.Errorf("Close returned after %v, want at most %v", took, c.within)
				}
				stuck := err != nil && strings.Contains(err.Error(), "the hook Acquired does not return")
				if stuck != c.stuck || err != nil && !stuck {
					t.Errorf("Close returned %v", err)
				}
				time.Sleep(48 * time.Hour) // hooks that hang end within this time
			})
		})
	}
}

func ExampleHooks_leases() {
	session, err := dlock.NewSession(memlock.New(), dlock.SessionOptions{Hooks: dlock.Hooks{
		Acquired: func(e dlock.LeaseAcquired) { fmt.Println("acquired", e.Name, e.Slot) },
		Lost:     func(e dlock.LeaseEnded) { fmt.Println("lost", e.Name, e.Err) },
		Released: func(e dlock.LeaseEnded) { fmt.Println("released", e.Name, "error", e.Err) },
	}})
	if err != nil {
		panic(err)
	}
	lease, err := session.Semaphore("report", 3).Acquire(context.Background())
	if err != nil {
		panic(err)
	}
	_ = lease.Release(context.Background())
	_ = session.Close(context.Background()) // delivers the remaining events
	// Output:
	// acquired report 0
	// released report error <nil>
}

// If Called exits the goroutine of a heartbeat, the leases miss only one renewal: the next beat
// comes, and Close returns.
//
// Fails when beat does not end in a defer, and when leases that it did not reach are due again at
// once.
func TestCalledThatExits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls, exits atomic.Int32
		h := newHost(t, memlock.New(), dlock.SessionOptions{TTL: ttl, StoreTimeout: timeout, Hooks: dlock.Hooks{
			Called: func(c dlock.StoreCall) {
				if calls.Add(1); c.Op == dlock.StoreOpExtend && exits.Add(-1) >= 0 {
					runtime.Goexit()
				}
			},
		}})
		lease := h.take(t, "a", 1)
		exits.Store(1)
		advance(10 * ttl)
		if !lease.Valid() || exits.Load() >= 0 {
			t.Errorf("valid %t: %v; %d exits to come", lease.Valid(), lease.Err(), exits.Load())
		}
		exits.Store(1000)
		before := calls.Load()
		advance(2 * ttl)
		if n := calls.Load() - before; lease.Valid() || n > 20 {
			t.Errorf("always: valid %t after %d calls", lease.Valid(), n)
		}
		if err := h.Close(bg); err != nil {
			t.Error(err)
		}
	})
}
