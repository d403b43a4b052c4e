package dlock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// What an attempt costs above the store: refused, its token and its context; granted and released, also the lease and what its release is told.
//
// Fails if the context of a call starts a timer, if a tick gets a place of its own, or if a lease gets its context before somebody asks.
func TestAllocationsOfAnAttempt(t *testing.T) {
	session, store := newInstant(t)
	job, tick := session.Semaphore("process-the-orders-of-the-whole-day", 3), dlock.Tick{At: time.Now(), Max: 1}
	cycle := func() {
		if lease, err := job.TryAcquireTick(bg, tick); err == nil {
			lease.Release(bg)
		}
	}
	extra := 0.0 // the race detector makes the token's bytes escape
	if raceDetector {
		extra = 1
	}
	if n := testing.AllocsPerRun(1000, cycle); n != 6+extra {
		t.Errorf("%v for an acquire and its release, want %v", n, 6+extra)
	}
	store.refuses = &dlock.NotAcquiredError{Name: "job", Reason: dlock.Full}
	if n := testing.AllocsPerRun(1000, cycle); n != 2+extra {
		t.Errorf("%v for an acquire that is refused, want %v", n, 2+extra)
	}
}

// A heartbeat costs per call, not per lease: the clocks are read before it and after, and what it allocates does not depend on how many leases it
// renews. All windows are closed by one timer.
//
// Fails if renewed reads the clock itself, or if every lease has a timer of its own that looks whether its window has closed.
func TestHeartbeatCostsPerCall(t *testing.T) {
	var looks atomic.Int64
	dlock.CountLooks(t, &looks)
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{})
		for _, name := range names("job", dlock.BeatBatch) {
			h.take(t, name, 1)
		}
		before := looks.Load()
		advance(60 * beat)
		closer := int64(60*beat/(trusted-beat)) + 1 // it comes when the oldest window would have closed without renewal
		if n := looks.Load() - before; n > 2*60+closer {
			t.Errorf("%d looks at the clocks in 60 heartbeats, want 2 each and at most %d of the closer", n, closer)
		}
	})
	allocs := func(leases int) float64 {
		session, _ := newInstant(t)
		for i := range leases {
			if _, err := session.Mutex(fmt.Sprint("job-", i)).TryAcquire(bg); err != nil {
				t.Fatal(err)
			}
		}
		return testing.AllocsPerRun(20, session.RenewAll)
	}
	if one, many := allocs(1), allocs(dlock.BeatBatch); many > one+1 {
		t.Errorf("%v allocations for %d leases, %v for one", many, dlock.BeatBatch, one)
	}
}

// The windows close each at its time, in whatever order the leases came: the one whose request was sent first, though its answer came last,
// and the one that the store did not renew beside one that it did.
//
// Fails if enter puts every lease at the end of the line (the first is found when the second closes), or if closeAt ignores an earlier time.
func TestI2_WindowsCloseInTheirOrder(t *testing.T) {
	t.Run("acquired", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHost(t, memlock.New(), dlock.SessionOptions{})
			h.faulty.Inject(down, dlocktest.Extend)
			h.faulty.InjectN(1, dlocktest.Slow(400*time.Millisecond), dlocktest.Acquire)
			start := time.Now()
			slow := make(chan *dlock.Lease)
			go func() { slow <- h.take(t, "first", 1) }()
			advance(100 * time.Millisecond)
			second := h.take(t, "second", 1)
			first := <-slow
			for i, l := range []*dlock.Lease{first, second} {
				<-l.Done()
				if at := time.Since(start); at != trusted+time.Duration(i)*100*time.Millisecond {
					t.Errorf("%s ended after %v", l.Name(), at)
				}
			}
		})
	})
	t.Run("renewed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHost(t, memlock.New(), dlock.SessionOptions{})
			h.spy.onExtend = func(r []dlock.Result, err error) ([]dlock.Result, error) {
				for i, g := range h.spy.extended()[len(h.spy.extended())-1].grants {
					if g.Name == "second" {
						r[i] = dlock.Result{Outcome: dlock.Unknown}
					}
				}
				return r, err
			}
			start := time.Now()
			first := h.take(t, "first", 1)
			advance(time.Millisecond)
			second := h.take(t, "second", 1)
			third := h.take(t, "third", 1)
			<-second.Done()
			if at := time.Since(start); at != trusted+time.Millisecond {
				t.Errorf("ended after %v", at)
			}
			if !wantLost(t, second).Silent {
				t.Error("want a silent loss")
			}
			advance(time.Minute)
			wantHeld(t, first)
			wantHeld(t, third)
		})
	})
}

// A context that is asked for after the lease has ended has ended too, and tells why.
//
// Fails if Context does not look at the state.
func TestContextAskedForTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{})
		released, lost := h.take(t, "released", 1), h.take(t, "lost", 1)
		if err := released.Release(bg); err != nil {
			t.Fatal(err)
		}
		h.faulty.Inject(down)
		advance(trusted)
		if err := context.Cause(released.Context()); err != dlock.ErrReleased {
			t.Errorf("released: %v", err)
		}
		if err := context.Cause(lost.Context()); err == nil || err != lost.Err() {
			t.Errorf("lost: %v, Err %v", err, lost.Err())
		}
		wantLost(t, lost)
	})
}

// A context that was asked for in time ends with the release, before the store is told.
//
// Fails if Release does not tell.
func TestI2_ContextEndsWithTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{})
		lease := h.take(t, "job", 1)
		ctx := lease.Context()
		h.spy.onRelease = func(context.Context) {
			if context.Cause(ctx) != dlock.ErrReleased {
				t.Errorf("cause %v when the release was sent", context.Cause(ctx))
			}
		}
		if err := lease.Release(bg); err != nil {
			t.Error(err)
		}
	})
}

// What failed waits for its retry; it does not take the turns of those that are not due yet.
//
// Fails if nextTurn does not look at failing (it is asked again after beat/2, before it may be).
func TestRetryIsNotHurried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{})
		for _, name := range names("job", 10*dlock.BeatBatch) {
			h.take(t, name, 1)
		}
		h.faulty.Inject(down, dlocktest.Extend)
		advance(beat - time.Millisecond) // none is due by itself
		tried := map[string]time.Time{}
		for _, c := range h.spy.extended() {
			name := c.grants[0].Name
			if before, ok := tried[name]; ok && c.at.Sub(before) < ttl/10 {
				t.Errorf("asked again after %v, want %v at least", c.at.Sub(before), ttl/10)
			}
			tried[name] = c.at
		}
		if len(h.spy.extended()) < 2 {
			t.Error("the test is wrong: nothing was asked again")
		}
	})
}

// A lease whose renewing is stopped while it is being renewed is not renewed again, and does not end by the store's silence.
//
// Fails if renew gives a turn to what was renewed without looking, or takes unanswered what is not to be renewed.
func TestStopRenewingDuringAHeartbeat(t *testing.T) {
	for name, fault := range map[string]error{"renewed": nil, "fails": errDown} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, memlock.New(), dlock.SessionOptions{})
				var lease *dlock.Lease
				h.spy.onExtend = func(r []dlock.Result, err error) ([]dlock.Result, error) {
					lease.StopRenewing()
					return r, fault
				}
				lease = h.take(t, "job", 1)
				<-lease.Done()
				if how := wantLost(t, lease); how.Silent {
					t.Errorf("%v: it was meant to end", how)
				}
				if n := len(h.spy.extended()); n != 1 || !h.Idle() {
					t.Errorf("%d heartbeats, idle %v", n, h.Idle())
				}
			})
		})
	}
}

// When something is to be given back because the store did not answer, leases are renewed as well, before their time: so it is soon known how
// the store is.
//
// Fails if beat gives back only.
func TestGivingBackAlsoRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{})
		h.take(t, "job", 1)
		h.faulty.InjectN(2, dlocktest.LostReply, dlocktest.Acquire)
		h.Mutex("another").TryAcquire(bg)
		advance(ttl/10 + ttl/20)
		if n, m := len(h.spy.extended()), len(h.spy.released()); n != 1 || m != 1 {
			t.Errorf("%d heartbeats and %d releases, want 1 and 1", n, m)
		}
	})
}

// The context of a call is over when the call is, so that nothing of a driver goes on.
//
// Fails if ask or releaseNow does not end it.
func TestContextOfACallEndsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{})
		var calls []context.Context
		note := func(ctx context.Context) { calls = append(calls, ctx) }
		h.spy.onAcquire, h.spy.onRelease = note, note
		h.take(t, "job", 1).Release(bg)
		for i, ctx := range calls {
			if ctx.Err() != context.Canceled {
				t.Errorf("call %d: %v after it, want it cancelled", i, ctx.Err())
			}
		}
		if len(calls) != 2 {
			t.Errorf("%d calls, want 2", len(calls))
		}
	})
}

// A lease that is meant to end is not late, one that is not renewed in time is.
//
// Fails if RenewalLate takes in what is not renewed, or looks at the lease that was renewed last.
func TestRenewalLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{})
		h.take(t, "ending", 1).StopRenewing()
		h.faulty.Inject(down, dlocktest.Extend)
		advance(time.Second)
		h.take(t, "job", 1)
		advance(time.Second)
		h.take(t, "young", 1)
		advance(beat + timeout - time.Second)
		if late := h.RenewalLate(); late != 0 {
			t.Errorf("%v late, want 0", late)
		}
		advance(time.Millisecond)
		if late := h.RenewalLate(); late != time.Millisecond {
			t.Errorf("%v late, want 1ms", late)
		}
	})
}

// A window that closed while a heartbeat was under way ends its lease when the answer comes, though nobody waits for its end and the timer that
// would close it has slept as well.
//
// Fails if renew does not call the closer.
func TestI2_ClosedIsFoundByTheHeartbeat(t *testing.T) {
	sleep := dlock.FakeSleep(t, true)
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{TTL: 15 * time.Second, StoreTimeout: time.Second})
		h.take(t, "job", 1)
		h.faulty.Inject(dlocktest.Slow(300*time.Millisecond), dlocktest.Extend)
		advance(5100 * time.Millisecond)
		sleep(9 * time.Second)
		advance(200 * time.Millisecond)
		if !h.Idle() {
			t.Error("a lease whose window has closed is still held")
		}
	})
}

// A machine that sleeps while a heartbeat is under way has its leases renewed once more, at once: their windows began before the sleep.
//
// Fails if renew does not look at hurried.
func TestI2_MachineNappedDuringAHeartbeat(t *testing.T) {
	sleep := dlock.FakeSleep(t, true)
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{TTL: 15 * time.Second, StoreTimeout: time.Second})
		lease := h.take(t, "job", 1)
		lease.Done() // somebody waits for its end
		h.faulty.Inject(dlocktest.Slow(900*time.Millisecond), dlocktest.Extend)
		advance(5100 * time.Millisecond)
		sleep(5 * time.Second)
		advance(time.Second)
		if n := len(h.spy.extended()); n != 2 {
			t.Errorf("%d heartbeats, want the one that was under way and one after it", n)
		}
		wantHeld(t, lease)
	})
}
