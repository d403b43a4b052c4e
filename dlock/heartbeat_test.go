package dlock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// The budget of the heartbeat: one call per 500 leases and beat, a beat every third of the TTL.
//
// Fails if beatBatch is 400 or 600, or if the next beat is counted from the end of a slow one.
func TestHeartbeatIsBatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{})
		start := time.Now()
		var leases []*dlock.Lease
		for _, name := range names("job", 1200) {
			leases = append(leases, h.take(t, name, 1))
		}
		h.faulty.Inject(dlocktest.Slow(100*time.Millisecond), dlocktest.Extend)
		advance(4*beat + time.Second)
		for _, l := range leases {
			wantHeld(t, l)
		}
		calls := h.spy.extended()
		if len(calls) != 12 {
			t.Fatalf("%d calls in 4 beats, want 12", len(calls))
		}
		for i, c := range calls {
			if want := start.Add(time.Duration(i/3+1)*beat + time.Duration(i%3)*100*time.Millisecond); !c.at.Equal(want) {
				t.Errorf("call %d came after %v, want %v", i, c.at.Sub(start), want.Sub(start))
			}
			if want := []int{500, 500, 200}[i%3]; len(c.grants) != want {
				t.Errorf("call %d renews %d leases, want %d", i, len(c.grants), want)
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

// There is one heartbeat at a time, however long its calls take and whatever else asks for one meanwhile.
//
// Fails if schedule looks at s.closed only, not at s.beating, and beat likewise.
func TestOneHeartbeatAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{})
		for _, name := range names("job", 3*dlock.BeatBatch) {
			h.take(t, name, 1)
		}
		h.faulty.Inject(dlocktest.Hang, dlocktest.Extend)
		advance(beat + 100*time.Millisecond)
		h.take(t, "another", 1) // wants a beat after 2 s; this one hangs for 3 s
		h.faulty.InjectN(2, dlocktest.LostReply, dlocktest.Acquire)
		if _, err := h.Mutex("unsettled").TryAcquire(bg); err == nil { // wants one after 0.6 s
			t.Fatal("the test is wrong: acquired")
		}
		advance(time.Minute)
		if h.spy.most != 1 {
			t.Errorf("%d heartbeat calls at once, want 1", h.spy.most)
		}
	})
}

// Leases acquired in between are renewed with the next common beat: one call for all.
//
// Fails if schedule postpones a beat (drop the Before check), or every lease has its own.
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

// The store is left alone while nothing is held.
//
// Fails if remove does not stop the timers when the last lease goes, or beat calls Extend with nothing to renew.
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
		if n := h.faulty.Calls(dlocktest.Release); n != 3 {
			t.Errorf("%d releases, want 3", n)
		}
	})
}

// Rule 5: an unanswered heartbeat is repeated after TTL/10 to TTL/10 + TTL/20, until the window closes; answered again, the beat
// falls back to TTL/3. One failure never ends it.
//
// Fails if beat does not shorten the wait after a failure, if retryWait is TTL/2 and, for "panics", if callExtend does not recover.
func TestUnansweredHeartbeatIsRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		fault dlocktest.Fault
		takes time.Duration
	}{
		"fails":             {down, 0},
		"hangs":             {dlocktest.Hang, timeout},
		"panics":            {dlocktest.Panic, 0},
		"loses the reply":   {dlocktest.LostReply, 0},
		"answers too short": {dlocktest.Short, 0},
		"knows nothing":     {dlocktest.Fault{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const ttl, beat = 15 * time.Second, 5 * time.Second
				h := newHost(t, memlock.New(), dlock.SessionOptions{TTL: ttl, StoreTimeout: timeout})
				if name == "knows nothing" { // the answer is complete, and says Unknown
					calls := 0
					h.spy.onExtend = func(results []dlock.Result, err error) ([]dlock.Result, error) {
						if calls++; calls <= 2 {
							results[0] = dlock.Result{Outcome: dlock.Unknown}
						}
						return results, err
					}
				}
				lease := h.take(t, "job", 1)
				h.faulty.InjectN(2, c.fault, dlocktest.Extend)
				advance(time.Minute)
				wantHeld(t, lease)
				calls := h.spy.extended()
				for i := 1; i < len(calls); i++ {
					gap := calls[i].at.Sub(calls[i-1].at)
					if i <= 2 {
						if gap -= c.takes; gap < ttl/10 || gap > ttl/10+ttl/20 {
							t.Errorf("repeated after %v, want %v to %v", gap, ttl/10, ttl/10+ttl/20)
						}
					} else if gap != beat {
						t.Errorf("beat %d came after %v, want %v", i, gap, beat)
					}
				}
			})
		})
	}
}

// A heartbeat that hangs does not end the leases of another batch, nor does one that panics.
//
// Fails if renewAll returns at the first error.
func TestOneBatchDoesNotHarmAnother(t *testing.T) {
	for name, fault := range map[string]dlocktest.Fault{"hangs": dlocktest.Hang, "panics": dlocktest.Panic} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, memlock.New(), dlock.SessionOptions{})
				var leases []*dlock.Lease
				for _, name := range names("job", 2*dlock.BeatBatch) {
					leases = append(leases, h.take(t, name, 1))
				}
				h.faulty.InjectN(1, fault, dlocktest.Extend)
				advance(beat + timeout)
				if calls := h.spy.extended(); len(calls) < 2 || calls[0].grants[0] == calls[1].grants[0] || calls[1].at.Sub(calls[0].at) > timeout {
					t.Error("the second batch was not tried in the beat of the first")
				}
				advance(2 * ttl)
				for _, l := range leases {
					wantHeld(t, l)
				}
			})
		})
	}
}

// Rule 5: lost is final, for that lease alone; unknown is asked again. The others of the batch do not notice.
//
// Fails if renewAll treats Lost of one as an answer for all, Unknown as Lost, or does not look at the outcome.
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
			if slices.ContainsFunc(call.grants, func(g dlock.Grant) bool { return g.Name == "b" }) {
				t.Fatalf("beat %d extends the lease that is lost", i+2)
			}
		}
		if err := b.Release(bg); !errors.Is(err, dlock.ErrLost) {
			t.Errorf("Release: %v, want ErrLost", err)
		}
	})
}

// A store that answers for too few or too many is not believed for any: nobody can know which answer is whose.
//
// Fails if callExtend does not compare the lengths (too short: a panic; too many: taken for an answer).
func TestWrongNumberOfResults(t *testing.T) {
	for name, lie := range map[string]func([]dlock.Result) []dlock.Result{
		"too few":  func(r []dlock.Result) []dlock.Result { return r[:1] },
		"none":     func([]dlock.Result) []dlock.Result { return nil },
		"too many": func(r []dlock.Result) []dlock.Result { return append(r, dlock.Result{Outcome: dlock.OK}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, memlock.New(), dlock.SessionOptions{})
				h.spy.onExtend = func(r []dlock.Result, err error) ([]dlock.Result, error) { return lie(r), err }
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

// Rule 3: StopRenewing lets a lease end by itself: valid until its window closes, free within a TTL of its last renewal. The others
// are renewed.
//
// Fails if renewAll ignores l.renew.
func TestStopRenewing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		h := newHost(t, store, dlock.SessionOptions{})
		start := time.Now()
		lease, other := h.take(t, "job", 1), h.take(t, "other", 1)
		rival := newRival(t, store, lease)
		advance(beat + time.Second)
		lease.StopRenewing()
		lease.StopRenewing()
		advance(trusted - time.Second - time.Nanosecond)
		wantHeld(t, lease)
		advance(time.Nanosecond)
		if how := wantLost(t, lease); how.Silent || how.Err != nil {
			t.Errorf("%+v: want the end that was asked for", how)
		}
		rival.check(t)
		if took := rival.at.Sub(start); took != beat+ttl {
			t.Errorf("the slot was free after %v, want %v", took, beat+ttl)
		}
		wantHeld(t, other)
	})
}

// What another host told the store about the name arrives with the heartbeat.
//
// Fails if renewed does not keep the news, or newLease those of the grant.
func TestNewsArriveWithTheHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		a, b := newHost(t, store, dlock.SessionOptions{}), newHost(t, store, dlock.SessionOptions{})
		lease := a.take(t, "job", 3)
		if got := lease.News().Slots; got != 0 {
			t.Errorf("News.Slots %d before anybody else told anything, want 0", got)
		}
		second := b.take(t, "job", 5)
		if got := second.News().Slots; got != 3 {
			t.Errorf("News.Slots %d with the grant, want the 3 of the first host", got)
		}
		advance(beat)
		if got := lease.News().Slots; got != 5 {
			t.Errorf("News.Slots %d after a heartbeat, want the 5 of the other host", got)
		}
	})
}

// What is unsettled is given back in batches too, is no longer worth a call after one TTL, when it has ended by itself, and
// is bounded: a store that was down for long does not find a flood of old releases at its return.
//
// Fails if beat keeps what has ended (all 120 are released), settleAll sends all at once, or settle has no bound.
func TestUnsettledIsBounded(t *testing.T) {
	given := func(h host, since int) (n, largest int) {
		for _, c := range h.spy.released()[since:] {
			n += len(c.grants)
			largest = max(largest, len(c.grants))
		}
		return n, largest
	}
	t.Run("in time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHost(t, memlock.New(), dlock.SessionOptions{})
			fail := func(seconds int) {
				h.faulty.Inject(down)
				for range seconds {
					h.Mutex("job").TryAcquire(bg)
					advance(time.Second)
				}
			}
			fail(120)
			before := len(h.spy.released())
			h.faulty.Heal()
			advance(ttl)
			if n, _ := given(h, before); n < 4 || n > 7 {
				t.Errorf("%d given back when the store returned, want those of the last TTL: 4 to 7", n)
			}
			if !h.Idle() {
				t.Error("the session still tries")
			}

			fail(1)
			advance(ttl + ttl/10 + ttl/20)
			if !h.Idle() {
				t.Error("the session still tries to give back what has ended by itself")
			}
		})
	})
	t.Run("in number", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHost(t, memlock.New(), dlock.SessionOptions{})
			h.faulty.Inject(down, dlocktest.Acquire)
			for range dlock.MaxUnsettled + 50 {
				h.Mutex("job").TryAcquire(bg)
			}
			advance(ttl)
			if n, largest := given(h, 0); n != dlock.MaxUnsettled || largest != dlock.BeatBatch {
				t.Errorf("%d given back, at most %d at once, want %d and %d", n, largest, dlock.MaxUnsettled, dlock.BeatBatch)
			}
		})
	})
}

// A heartbeat has a deadline, and it is StoreTimeout.
//
// Fails if callExtend has no time-out of its own.
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

// deadlines notes how much time each call has.
type deadlines struct {
	dlock.DistributedLock
	left []time.Duration
}

func (d *deadlines) note(ctx context.Context) {
	at, _ := ctx.Deadline()
	d.left = append(d.left, time.Until(at))
}

func (d *deadlines) TryAcquire(ctx context.Context, req dlock.Request) (dlock.Grant, error) {
	d.note(ctx)
	return d.DistributedLock.TryAcquire(ctx, req)
}

func (d *deadlines) Extend(ctx context.Context, ttl time.Duration, grants ...dlock.Grant) ([]dlock.Result, error) {
	d.note(ctx)
	return d.DistributedLock.Extend(ctx, ttl, grants...)
}

func (d *deadlines) Release(ctx context.Context, grants ...dlock.Grant) ([]dlock.Result, error) {
	d.note(ctx)
	return d.DistributedLock.Release(ctx, grants...)
}
