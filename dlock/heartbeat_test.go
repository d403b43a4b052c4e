package dlock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// The heartbeat makes one call per 500 leases and beat, and a beat comes every third of the TTL.
// The calls of one beat are spread over it.
//
// Fails when beatBatch is 300 or 600, or when the next call is timed from the end of a slow one.
func TestHeartbeatIsBatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{})
		start := time.Now()
		var leases []*dlock.Lease
		for _, name := range names("job", 1200) {
			leases = append(leases, h.take(t, name, 1))
		}
		h.faulty.Inject(dlocktest.Slow(100*time.Millisecond), dlocktest.OpExtend)
		advance(4*beat + beat/6)
		for _, l := range leases {
			wantHeld(t, l)
		}
		calls := h.spy.extended()
		if len(calls) != 12 {
			t.Fatalf("%d calls in 4 beats, want 12", len(calls))
		}
		for i, c := range calls {
			if want := start.Add(time.Duration(i+1) * (beat / 3)); !c.at.Equal(want) {
				t.Errorf("call %d came after %v, want %v", i, c.at.Sub(start), want.Sub(start))
			}
			if len(c.grants) != 400 {
				t.Errorf("call %d renews %d leases, want 400", i, len(c.grants))
			}
		}
		if h.spy.most != 1 {
			t.Errorf("%d heartbeat calls at once, want 1", h.spy.most)
		}
		for _, l := range leases {
			l.Release(bg)
		}
		if !h.Idle() {
			t.Error("not idle with nothing held")
		}
	})
}

// However a host acquired its leases, its calls are evenly spread before the first beat is over.
// From then on, there is at most one call per 500 leases and beat, and every lease is renewed
// within a third of the TTL.
//
// Fails when nextRenewal counts only from the first due time (bursts of 20 calls) or only from the
// last call (renewals later than TTL/3). Also fails when schedule is not called although a cycle
// needs another call (renewals later than TTL/3).
func TestHeartbeatIsSpread(t *testing.T) {
	const ttl, beat = 15 * time.Second, 5 * time.Second
	for name, c := range map[string]struct{ leases, over, calls int }{
		"at once":            {10_000, 0, 20},
		"within a second":    {10_000, 1000, 20},
		"within a beat":      {10_000, 5000, 20},
		"one call":           {500, 1000, 1},
		"one lease too many": {501, 1000, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, memlock.New(), dlock.SessionOptions{TTL: ttl, StoreTimeout: timeout})
				renewed := map[string]time.Time{}
				for i, name := range names("job", c.leases) {
					h.take(t, name, 1)
					renewed[name] = time.Now()
					if c.over > 0 && (i+1)%(c.leases/min(c.over, c.leases)) == 0 && i < c.leases-1 {
						advance(time.Millisecond)
					}
				}
				warm := time.Now().Add(beat)
				advance(5 * beat)
				var last time.Time
				calls := 0
				for _, call := range h.spy.extended() {
					for _, g := range call.grants {
						if gap := call.at.Sub(renewed[g.Name]); gap > beat {
							t.Fatalf("%s was renewed %v after the last time, want %v at most", g.Name, gap, beat)
						}
						renewed[g.Name] = call.at
					}
					if call.at.After(warm) {
						calls++
						even := beat / time.Duration(c.calls)
						if gap := call.at.Sub(last); last.After(warm) && (gap < even-time.Microsecond ||
							gap > even+time.Microsecond) {
							t.Errorf("a call %v after the last, want %v", gap, even)
						}
					}
					last = call.at
				}
				if calls > 4*c.calls || calls < 4*c.calls-1 {
					t.Errorf("%d calls in 4 beats, want %d", calls, 4*c.calls)
				}
				for name, at := range renewed {
					if time.Since(at) > beat {
						t.Fatalf("%s was last renewed %v ago", name, time.Since(at))
					}
				}
			})
		})
	}
}

// Only one heartbeat runs at a time, even if its calls are slow and other calls ask for one
// meanwhile.
//
// Fails when schedule and beat check only s.closed and not s.beating.
func TestOneHeartbeatAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{})
		for _, name := range names("job", 3*dlock.BeatBatch) {
			h.take(t, name, 1)
		}
		h.faulty.Inject(dlocktest.Hang, dlocktest.OpExtend)
		advance(beat + 100*time.Millisecond)
		h.take(t, "another", 1) // would need a beat after 2 s, but this one hangs for 3 s
		h.faulty.InjectN(2, dlocktest.LostReply, dlocktest.OpAcquire)
		if _, err := h.Mutex("unsettled").TryAcquire(bg); err == nil { // would need one after 0.6 s
			t.Fatal("the test is wrong: acquired")
		}
		advance(time.Minute)
		if h.spy.most != 1 {
			t.Errorf("%d heartbeat calls at once, want 1", h.spy.most)
		}
	})
}

// New leases are renewed with the next common beat, in one call for all.
//
// Fails when schedule postpones a beat (without the Before check), or when every lease has its own
// beat.
func TestNewLeaseJoinsTheNextBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{})
		start := time.Now()
		h.take(t, "a", 1)
		advance(500 * time.Millisecond)
		h.take(t, "b", 1)
		advance(beat - 500*time.Millisecond - time.Nanosecond)
		h.take(t, "c", 1)
		advance(time.Nanosecond)
		calls := h.spy.extended()
		if len(calls) != 1 || len(calls[0].grants) != 3 || calls[0].at.Sub(start) != beat {
			t.Errorf("calls %v, want one of three leases after %v", calls, beat)
		}
	})
}

// A session without leases makes no calls.
//
// Fails when remove does not stop the timers after the last lease, or when beat calls Extend with
// nothing to renew.
func TestNoCallsWhileNothingIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{})
		for range 3 {
			lease := h.take(t, "job", 1)
			advance(beat + time.Second)
			if h.Idle() {
				t.Error("idle while a lease is held")
			}
			lease.Release(bg)
			if !h.Idle() {
				t.Error("not idle with nothing held")
			}
			before := len(h.spy.extended())
			advance(time.Hour)
			if after := len(h.spy.extended()); after != before {
				t.Errorf("%d heartbeats with nothing held", after-before)
			}
		}
		if n := h.faulty.Calls(dlocktest.OpRelease); n != 3 {
			t.Errorf("%d releases, want 3", n)
		}
	})
}

// A heartbeat that hangs or panics does not end the leases of other batches.
//
// Fails when leases whose renewal failed are due again immediately, before the others.
func TestOneBatchDoesNotHarmAnother(t *testing.T) {
	for name, fault := range map[string]dlocktest.Fault{"hangs": dlocktest.Hang, "panics": dlocktest.Panic} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, memlock.New(), dlock.SessionOptions{})
				start := time.Now()
				var leases []*dlock.Lease
				for _, name := range names("job", 2*dlock.BeatBatch) {
					leases = append(leases, h.take(t, name, 1))
				}
				h.faulty.InjectN(1, fault, dlocktest.OpExtend)
				advance(beat + timeout)
				of := func(l *dlock.Lease) []time.Time { // times of the calls for l
					var at []time.Time
					for _, c := range h.spy.extended() {
						if slices.ContainsFunc(c.grants, func(g driver.Grant) bool { return g.Name == l.Name() }) {
							at = append(at, c.at)
						}
					}
					return at
				}
				if first := of(leases[0]); len(first) == 0 || !first[0].Equal(start.Add(beat/2)) {
					t.Errorf("the first batch was tried at %v, want first after %v", first, beat/2)
				}
				if second := of(leases[len(leases)-1]); len(second) == 0 || !second[0].Equal(start.Add(beat)) {
					t.Errorf("the second batch was tried at %v, want first after %v, when it was due", second, beat)
				}
				advance(2 * ttl)
				for _, l := range leases {
					wantHeld(t, l)
				}
			})
		})
	}
}

// Lost is final, but only for its own lease. After Unknown, the session asks again. The other
// leases of the batch are not affected.
//
// Fails when renew treats one Lost as an answer for all leases, treats Unknown as Lost, or ignores
// the outcome.
func TestOneLostLeaseOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		h := newHost(t, store, dlock.SessionOptions{})
		a := h.take(t, "a", 1)
		b := h.take(t, "b", 1)
		stolen := h.spy.granted()
		c := h.take(t, "c", 1)
		store.Release(bg, stolen)
		advance(beat)
		if how := wantLost(t, b); how.Silent || how.Name != "b" {
			t.Errorf("%+v: want the loss of b, as the store said", how)
		}
		advance(time.Minute)
		wantHeld(t, a)
		wantHeld(t, c)
		for i, call := range h.spy.extended()[1:] {
			if slices.ContainsFunc(call.grants, func(g driver.Grant) bool { return g.Name == "b" }) {
				t.Fatalf("beat %d extends the lease that is lost", i+2)
			}
		}
		if err := b.Release(bg); !errors.Is(err, dlock.ErrLost) {
			t.Errorf("Release: %v, want ErrLost", err)
		}
	})
}

// An answer with too few or too many results counts for no lease, because no result can be assigned
// to its lease.
//
// Fails when the call does not compare the lengths (too few: a panic; too many: accepted).
func TestWrongNumberOfResults(t *testing.T) {
	for name, lie := range map[string]func([]driver.Result) []driver.Result{
		"too few": func(r []driver.Result) []driver.Result { return r[:1] },
		"none":    func([]driver.Result) []driver.Result { return nil },
		"too many": func(r []driver.Result) []driver.Result {
			return append(r, driver.Result{Outcome: driver.GrantOK})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, memlock.New(), dlock.SessionOptions{})
				h.spy.onExtend = func(r []driver.Result, err error) ([]driver.Result, error) { return lie(r), err }
				a, b := h.take(t, "a", 1), h.take(t, "b", 1)
				advance(trusted - time.Nanosecond)
				wantHeld(t, a)
				wantHeld(t, b)
				advance(time.Nanosecond)
				if !wantLost(t, a).Silent || !wantLost(t, b).Silent {
					t.Error("want silent losses: nothing that the store said could be used")
				}
			})
		})
	}
}

// The heartbeat brings changes that another host made to the name.
//
// Fails when renewed does not keep the info, or newLease does not keep the info of the grant.
func TestInfoArrivesWithTheHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		a, b := newHost(t, store, dlock.SessionOptions{}), newHost(t, store, dlock.SessionOptions{})
		lease := a.take(t, "job", 3)
		if got := lease.Info().DeclaredSlots; got != 0 {
			t.Errorf("Info.DeclaredSlots %d before anybody else told anything, want 0", got)
		}
		second := b.take(t, "job", 5)
		if got := second.Info().DeclaredSlots; got != 3 {
			t.Errorf("Info.DeclaredSlots %d with the grant, want the 3 of the first host", got)
		}
		advance(beat)
		if got := lease.Info().DeclaredSlots; got != 5 {
			t.Errorf("Info.DeclaredSlots %d after a heartbeat, want the 5 of the other host", got)
		}
	})
}

// A heartbeat's deadline is StoreTimeout.
//
// Fails when extend has no timeout of its own.
func TestCallsHaveDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{})
		h.take(t, "job", 1)
		deadline := &deadlines{DistributedLock: h.store}
		other, err := dlock.NewSession(deadline, dlock.SessionOptions{TTL: ttl, StoreTimeout: timeout})
		if err != nil {
			t.Fatal(err)
		}
		lease, err := other.Mutex("job").TryAcquire(bg)
		if err != nil {
			t.Fatal(err)
		}
		advance(beat)
		lease.Release(bg)
		if want := []time.Duration{timeout / 2, timeout, timeout}; !slices.Equal(deadline.left, want) {
			t.Errorf("acquire, extend and release had %v left, want %v", deadline.left, want)
		}
	})
}

// deadlines records the time that each call has.
type deadlines struct {
	dlock.DistributedLock
	left []time.Duration
}

func (d *deadlines) note(ctx context.Context) {
	at, _ := ctx.Deadline()
	d.left = append(d.left, time.Until(at))
}

func (d *deadlines) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	d.note(ctx)
	return d.DistributedLock.TryAcquire(ctx, req)
}

func (d *deadlines) Extend(ctx context.Context, ttl time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	d.note(ctx)
	return d.DistributedLock.Extend(ctx, ttl, grants...)
}

func (d *deadlines) Release(ctx context.Context, grants ...driver.Grant) ([]driver.Result, error) {
	d.note(ctx)
	return d.DistributedLock.Release(ctx, grants...)
}

// A lease with a slow acquire is renewed before a lease that was requested later and granted
// sooner.
//
// Fails when add schedules a beat only for the first lease of an empty queue.
func TestSlowAcquireHasItsTurnFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{TTL: 3 * time.Second, StoreTimeout: time.Second})
		start := time.Now()
		h.faulty.InjectN(1, dlocktest.Slow(400*time.Millisecond), dlocktest.OpAcquire)
		var all sync.WaitGroup
		all.Go(func() { h.take(t, "slow", 1) })
		advance(300 * time.Millisecond)
		h.take(t, "quick", 1)
		all.Wait()
		advance(2 * time.Second)
		if calls := h.spy.extended(); len(calls) == 0 || !calls[0].at.Equal(start.Add(time.Second)) {
			t.Errorf("calls at %v, want the first after 1s", calls)
		}
	})
}

// RenewalLateness ignores leases that need no renewal and reports leases that are not renewed in
// time.
//
// Fails when RenewalLateness counts leases that are not renewed, or uses the lease that was renewed
// last.
func TestRenewalLateness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{})
		h.take(t, "ending", 1).StopRenewing()
		h.faulty.Inject(down, dlocktest.OpExtend)
		advance(time.Second)
		h.take(t, "job", 1)
		advance(time.Second)
		h.take(t, "young", 1)
		advance(beat + timeout - time.Second)
		if late := h.RenewalLateness(); late != 0 {
			t.Errorf("%v late, want 0", late)
		}
		advance(time.Millisecond)
		if late := h.RenewalLateness(); late != time.Millisecond {
			t.Errorf("%v late, want 1ms", late)
		}
	})
}
