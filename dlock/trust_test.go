package dlock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// Heartbeats fail with these faults. In some cases the store extends the lease, but this host
// cannot know it.
var deafHeartbeats = map[string]dlocktest.Fault{
	"hangs":             dlocktest.Hang,
	"fails":             down,
	"panics":            dlocktest.Panic,
	"loses the reply":   dlocktest.LostReply,
	"is silent":         dlocktest.SilentReply,
	"answers too late":  dlocktest.Slow(timeout + time.Millisecond),
	"answers too short": dlocktest.Short,
	"gets it late":      dlocktest.Late(2500 * time.Millisecond),
	"gets it very late": dlocktest.Late(30 * time.Second),
}

// I2: with any fault of a heartbeat, the lease is valid until its window closes and ends at that
// instant, before the store can grant the slot to another holder.
//
// Fails when the window is the whole TTL (margin returns 0, and the lease ends too late), when the
// expiry timer is never started, when an unanswered heartbeat moves the window (renewed called for
// Unknown) and, with a crash, when the call does not recover.
func TestI2_LostBeforeTheStoreCanGrantAgain(t *testing.T) {
	for name, fault := range deafHeartbeats {
		for _, renewals := range []int{0, 1, 3} {
			t.Run(fmt.Sprintf("%s after %d renewals", name, renewals), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := memlock.New()
					h := newHost(t, store, dlock.SessionOptions{})
					lease := h.take(t, "job", 1)
					rival := newRival(t, store, lease)
					advance(time.Duration(renewals)*beat + time.Millisecond)
					h.faulty.Inject(fault, dlocktest.OpExtend)

					advance(trusted - 2*time.Millisecond) // the session sent the last renewal 1 ms before the fault
					wantHeld(t, lease)
					advance(time.Millisecond)
					how := wantLost(t, lease)
					if !how.Silent || how.Err == nil {
						t.Errorf("Silent %v, Err %v: want a silent loss that carries what the heartbeat came back with",
							how.Silent, how.Err)
					}
					rival.check(t)
				})
			})
		}
	}
}

// I2: trust counts from before the request was sent, so a slow reply does not extend it. If trust
// counted from the reply, the lease would here be valid for 300 ms after the store may grant it
// again.
//
// Fails when sent = now() is moved below the call in renew (heartbeat) or in ask (acquire).
func TestI2_SlowReplyProlongsNothing(t *testing.T) {
	slow := dlocktest.Slow(900 * time.Millisecond)
	t.Run("heartbeat", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memlock.New()
			h := newHost(t, store, dlock.SessionOptions{})
			lease := h.take(t, "job", 1)
			rival := newRival(t, store, lease)
			h.faulty.InjectN(1, slow, dlocktest.OpExtend)
			h.faulty.Inject(down, dlocktest.OpExtend)
			advance(beat + trusted - time.Nanosecond)
			wantHeld(t, lease)
			advance(time.Nanosecond)
			wantLost(t, lease)
			rival.check(t)
		})
	})
	t.Run("acquire", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memlock.New()
			h := newHost(t, store, dlock.SessionOptions{TTL: ttl, StoreTimeout: 2 * time.Second})
			h.faulty.Inject(slow, dlocktest.OpAcquire)
			h.faulty.Inject(down, dlocktest.OpExtend)
			lease := h.take(t, "job", 1)
			rival := newRival(t, store, lease)
			advance(trusted - 900*time.Millisecond - time.Nanosecond)
			wantHeld(t, lease)
			advance(time.Nanosecond)
			wantLost(t, lease)
			rival.check(t)
		})
	})
}

// A lease is trusted for exactly TTL − min(TTL/10, 1s), counted from before the last answered
// request was sent.
//
// Fails when margin is TTL/10 without the upper bound, the bound without TTL/10, or 0.
func TestTrustWindow(t *testing.T) {
	for _, c := range []struct{ ttl, want time.Duration }{
		{30 * time.Millisecond, 27 * time.Millisecond},
		{3 * time.Second, 2700 * time.Millisecond},
		{9 * time.Second, 8100 * time.Millisecond},
		{10 * time.Second, 9 * time.Second},
		{15 * time.Second, 14 * time.Second},
		{10 * time.Minute, 10*time.Minute - time.Second},
	} {
		t.Run(c.ttl.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, memlock.New(), dlock.SessionOptions{TTL: c.ttl, StoreTimeout: c.ttl / 3})
				lost := func(lease *dlock.Lease, from time.Time) {
					t.Helper()
					time.Sleep(time.Until(from.Add(c.want - time.Nanosecond)))
					wantHeld(t, lease)
					<-lease.Done()
					if got := time.Since(from); got != c.want || lease.Valid() {
						t.Errorf("ended after %v (Valid %v), want %v", got, lease.Valid(), c.want)
					}
				}
				start := time.Now()
				never := h.take(t, "never renewed", 1)
				h.faulty.Inject(down, dlocktest.OpExtend)
				lost(never, start)

				h.faulty.Heal()
				lease := h.take(t, "renewed", 1)
				advance(c.ttl + c.ttl/5)
				beats := h.spy.extended()
				h.faulty.Inject(down, dlocktest.OpExtend)
				lost(lease, beats[len(beats)-1].at)
			})
		})
	}
}

// A window that has closed stays closed, even if a heartbeat in flight then succeeds. While the
// machine slept, the slot may have had another holder, and a late copy of our acquire may have
// taken the slot again.
//
// Fails when renewed does not check whether the window has closed.
func TestI2_ClosedIsFinal(t *testing.T) {
	sleep := dlock.FakeSleep(t, true)
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{TTL: 15 * time.Second, StoreTimeout: time.Second})
		lease := h.take(t, "job", 1)
		h.faulty.Inject(dlocktest.Slow(300*time.Millisecond), dlocktest.OpExtend)
		advance(5100 * time.Millisecond) // the heartbeat of 5 s is in progress
		wantHeld(t, lease)
		sleep(9 * time.Second) // 5.1 s + 9 s > 14 s, but less than 14 s since the heartbeat was sent
		for range 1000 {
			if lease.Valid() {
				t.Fatal("valid after its window had closed")
			}
			advance(time.Millisecond)
		}
		wantLost(t, lease)
	})
}

// If the answer to a request comes after the trust window (here the machine slept in between),
// acquire returns an error, not a lease. The grant is released.
//
// Fails when acquire ignores the window (it returns a dead lease), or does not call releaseLater in
// this case.
func TestI2_AnswerLaterThanTrust(t *testing.T) {
	sleep := dlock.FakeSleep(t, true)
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		h := newHost(t, store, dlock.SessionOptions{})
		h.spy.onAcquire = func(context.Context) { sleep(trusted) }
		lease, err := h.Semaphore("job", 1).TryAcquire(bg)
		if lease != nil {
			t.Fatal("got a lease whose window had closed")
		}
		wantStoreError(t, err, dlock.StoreOpAcquire)
		if free(t, store, "job", 1) != 0 {
			t.Fatal("the test is wrong: nothing was granted")
		}
		advance(ttl/10 + ttl/20)
		if free(t, store, "job", 1) != 1 {
			t.Error("the grant was not given back")
		}
	})
}

// A timer uses LostError.Silent to distinguish "the store is down" from "another host has it".
// Silent is true only if the store did not answer and the window closed on time.
//
// Fails when renewed does not clear failure ("recovered"), when Lost answers are Silent ("the store
// said so"), when renew does not pass a failure to the later batches ("turn never came"), or when
// unanswered treats it as a lease that is not renewed (the same).
func TestLostErrorSilent(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(t *testing.T, h host, l *dlock.Lease)
		want bool
	}{
		"the store did not answer": {func(t *testing.T, h host, l *dlock.Lease) {
			h.faulty.Inject(down, dlocktest.OpExtend)
		}, true},
		"the store said so": {func(t *testing.T, h host, l *dlock.Lease) {
			h.store.Release(bg, h.spy.granted())
		}, false},
		"the store said so after a failure": {func(t *testing.T, h host, l *dlock.Lease) {
			h.store.Release(bg, h.spy.granted())
			h.faulty.InjectN(1, down, dlocktest.OpExtend)
		}, false},
		"meant to end": {func(t *testing.T, h host, l *dlock.Lease) {
			h.take(t, "another", 1) // keeps the heartbeat busy
			l.StopRenewing()
			h.faulty.Inject(down, dlocktest.OpExtend)
		}, false},
		"recovered": {func(t *testing.T, h host, l *dlock.Lease) {
			h.faulty.InjectN(1, down, dlocktest.OpExtend)
			advance(beat + ttl/10 + ttl/20)
			l.StopRenewing()
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, memlock.New(), dlock.SessionOptions{})
				lease := h.take(t, "job", 1)
				c.do(t, h, lease)
				<-lease.Done()
				if how := wantLost(t, lease); how.Silent != c.want {
					t.Errorf("%v: Silent %v, want %v", how, how.Silent, c.want)
				}
			})
		})
	}
	// With the shortest TTL and a store that hangs, the windows of the third batch of 500 close
	// before it is tried.
	t.Run("turn never came", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHost(t, memlock.New(), dlock.SessionOptions{TTL: 3 * time.Second, StoreTimeout: time.Second})
			var leases []*dlock.Lease
			for _, name := range names("job", 3*dlock.BeatBatch) {
				leases = append(leases, h.take(t, name, 1))
			}
			var ending []*dlock.Lease // ended on purpose, so not silently
			for _, name := range names("ending", 50) {
				l := h.take(t, name, 1)
				l.StopRenewing()
				ending = append(ending, l)
			}
			h.faulty.Inject(dlocktest.Hang, dlocktest.OpExtend)
			advance(3 * time.Second)
			for _, l := range ending {
				if how := wantLost(t, l); how.Silent {
					t.Fatalf("%v: it was meant to end", how)
				}
			}
			loud := 0
			for _, l := range leases {
				if how := wantLost(t, l); !how.Silent || how.Err == nil {
					loud++
				}
			}
			if loud > 0 {
				t.Errorf("%d of %d leases were not lost silently although the store never answered", loud, len(leases))
			}
		})
	})
}

// A run calls Valid before each step, so Valid must not allocate.
//
// Fails when Valid formats or boxes a value; tried with fmt.Sprint(t) in it.
func TestValidDoesNotAllocate(t *testing.T) {
	h := newHost(t, memlock.New(), dlock.SessionOptions{})
	lease := h.take(t, "job", 1)
	defer lease.Release(bg)
	valid := true
	if n := testing.AllocsPerRun(1000, func() { valid = valid && lease.Valid() }); n != 0 {
		t.Errorf("Valid allocates %v times", n)
	}
	if !valid {
		t.Error("not valid")
	}
}

// Each window closes on time, whatever the order of the leases. For example, one lease was
// requested first but answered last, and one lease was not renewed although another was.
//
// Fails when insert puts every lease at the end of the list (the first lease is found when the
// second closes), or when expireAt ignores an earlier time.
func TestI2_WindowsCloseInTheirOrder(t *testing.T) {
	t.Run("acquired", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHost(t, memlock.New(), dlock.SessionOptions{})
			h.faulty.Inject(down, dlocktest.OpExtend)
			h.faulty.InjectN(1, dlocktest.Slow(400*time.Millisecond), dlocktest.OpAcquire)
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
			h.spy.onExtend = func(r []driver.Result, err error) ([]driver.Result, error) {
				for i, g := range h.spy.extended()[len(h.spy.extended())-1].grants {
					if g.Name == "second" {
						r[i] = driver.Result{Outcome: driver.GrantUnknown}
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

// If a window closed during a heartbeat, its lease ends when the answer comes. This holds even if
// no caller waits for its end and the timer that should close it has slept as well.
//
// Fails when renew does not call expireAt.
func TestI2_ClosedIsFoundByTheHeartbeat(t *testing.T) {
	sleep := dlock.FakeSleep(t, true)
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{TTL: 15 * time.Second, StoreTimeout: time.Second})
		h.take(t, "job", 1)
		h.faulty.Inject(dlocktest.Slow(300*time.Millisecond), dlocktest.OpExtend)
		advance(5100 * time.Millisecond)
		sleep(9 * time.Second)
		advance(200 * time.Millisecond)
		if !h.Idle() {
			t.Error("a lease whose window has closed is still held")
		}
	})
}
