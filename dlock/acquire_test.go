package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// After a lost reply, the request is sent again with the same token. It takes one slot, returns
// that lease, and costs exactly one more call.
//
// Fails when the second request has a different token (two slots are taken) or is not sent.
func TestLostReplyOfAcquire(t *testing.T) {
	for name, fault := range map[string]dlocktest.Fault{
		"lost": dlocktest.LostReply, "silent": dlocktest.SilentReply, "slow": dlocktest.Slow(2 * time.Second),
		"never sent": down, "hangs": dlocktest.Hang, "panics": dlocktest.Panic,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				h := newHost(t, store, dlock.SessionOptions{})
				h.faulty.InjectN(1, fault, dlocktest.OpAcquire)
				var lease *dlock.Lease
				wantAtMost(t, timeout, "TryAcquire", func() { lease = h.take(t, "job", 3) })
				if n := h.faulty.Calls(dlocktest.OpAcquire); n != 2 {
					t.Errorf("%d calls, want 2", n)
				}
				if n := free(t, store, "job", 3); n != 2 {
					t.Errorf("%d of 3 slots free, want 2", n)
				}
				advance(time.Minute)
				wantHeld(t, lease)
				if err := lease.Release(bg); err != nil {
					t.Error(err)
				}
				if n := free(t, store, "job", 3); n != 3 {
					t.Errorf("%d of 3 slots free, want all", n)
				}
			})
		})
	}
}

// After a lost reply, an operator lowers the limit before the request is sent again. The session
// accepts the grant although its slot is beyond the new limit.
//
// Fails when a slot beyond the limit always counts as an invalid answer.
func TestLostReplyAndALowerLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		limit := func(slots int) {
			if err := store.Update(bg, "job",
				driver.Update{Limit: &driver.LimitOverride{Cause: driver.Cause{By: "ann"},
					Slots: slots}}); err != nil {
				t.Error(err)
			}
		}
		limit(2)
		newHost(t, store, dlock.SessionOptions{}).take(t, "job", 1)
		calls := 0
		h := newHost(t, beforeAcquire{store, func() {
			if calls++; calls == 2 {
				limit(1)
			}
		}}, dlock.SessionOptions{})
		h.faulty.InjectN(1, dlocktest.LostReply, dlocktest.OpAcquire)
		lease := h.take(t, "job", 1)
		if n := h.faulty.Calls(dlocktest.OpAcquire); lease.Slot() != 1 || n != 2 {
			t.Errorf("slot %d after %d calls, want slot 1 after 2", lease.Slot(), n)
		}
		if err := lease.Release(bg); err != nil {
			t.Error(err)
		}
	})
}

// If the reply is lost twice, the store has failed. A slot that may have been taken is freed in the
// background.
//
// Fails when acquire does not call releaseLater, or sends a third request.
func TestReplyOfAcquireLostTwice(t *testing.T) {
	for name, fault := range map[string]dlocktest.Fault{"lost": dlocktest.LostReply, "silent": dlocktest.SilentReply} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				h := newHost(t, store, dlock.SessionOptions{TTL: time.Minute, StoreTimeout: timeout})
				h.faulty.Inject(fault, dlocktest.OpAcquire)
				wantAtMost(t, timeout, "TryAcquire", func() {
					_, err := h.Semaphore("job", 3).TryAcquire(bg)
					wantStoreError(t, err, dlock.StoreOpAcquire)
					if !errors.Is(err, dlocktest.ErrInjected) {
						t.Errorf("%v does not carry what went wrong", err)
					}
				})
				if n := h.faulty.Calls(dlocktest.OpAcquire); n != 2 {
					t.Errorf("%d calls, want 2", n)
				}
				if n := free(t, store, "job", 3); n != 2 {
					t.Fatalf("%d of 3 slots free, want 2", n)
				}
				advance(time.Minute/10 + time.Minute/20)
				if n := free(t, store, "job", 3); n != 3 {
					t.Errorf("%d of 3 slots free, want all", n)
				}
				if !h.Idle() {
					t.Error("the session still tries")
				}
			})
		})
	}
}

// A request that arrives after everything else, even after its release, costs one slot for at most
// one TTL.
//
// Fails when the second request has a different token (two slots), or when the session keeps
// extending what it releases.
func TestRequestThatArrivesAfterItsRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		h := newHost(t, store, dlock.SessionOptions{})
		h.faulty.Inject(dlocktest.Late(3*time.Second), dlocktest.OpAcquire)
		_, err := h.Semaphore("job", 2).TryAcquire(bg) // applied at 3 s and again at 3.5 s
		wantStoreError(t, err, dlock.StoreOpAcquire)
		advance(time.Second) // settled at 1.6 s to 1.9 s
		if n := h.faulty.Calls(dlocktest.OpRelease); n != 1 {
			t.Fatalf("%d releases, want 1", n)
		}
		worst := 2
		for range 2500 {
			advance(time.Millisecond)
			worst = min(worst, free(t, store, "job", 2))
		}
		if worst != 1 {
			t.Errorf("%d of 2 slots free, want 1", worst)
		}
		advance(3500*time.Millisecond + ttl - 4500*time.Millisecond)
		if n := free(t, store, "job", 2); n != 2 {
			t.Errorf("%d of 2 slots free one TTL after the request arrived, want all", n)
		}
		if !h.Idle() {
			t.Error("the session still tries")
		}
	})
}

// The session does not confuse grants, refusals and store errors, and a cancelled call is none of
// these. It does not call the store with a context that has ended.
//
// Fails when acquire wraps every error in a StoreError, returns a NotAcquiredError for a failure,
// or does not check ctx first.
func TestThreeOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		a := newHost(t, store, dlock.SessionOptions{})
		b := newHost(t, store, dlock.SessionOptions{Holder: dlock.Holder{Host: "b"}, TTL: ttl, StoreTimeout: timeout})
		b.take(t, "job", 1)
		advance(time.Second)
		try := func() error {
			t.Helper()
			lease, err := a.Semaphore("job", 1).TryAcquire(bg)
			if lease != nil {
				t.Fatal("got a lease")
			}
			return err
		}

		err := try()
		held, ok := errors.AsType[*dlock.NotAcquiredError](err)
		if !ok || !errors.Is(err, dlock.ErrNotAcquired) || held.Reason != driver.ReasonFull ||
			held.Holder != b.Holder() || held.HeldFor != time.Second {
			t.Errorf("full: got %#v", err)
		}
		if _, failed := errors.AsType[*dlock.StoreError](err); failed {
			t.Errorf("full: %v is a StoreError", err)
		}
		if n := a.faulty.Calls(dlocktest.OpAcquire); n != 1 {
			t.Errorf("full: %d calls, want 1", n)
		}

		for _, fault := range []dlocktest.Fault{down, dlocktest.Hang, dlocktest.LostReply, dlocktest.SilentReply,
			dlocktest.Panic, dlocktest.Slow(time.Minute)} {
			a.faulty.Inject(fault, dlocktest.OpAcquire)
			wantStoreError(t, try(), dlock.StoreOpAcquire)
		}
		a.faulty.Heal()
		if err := try(); !errors.Is(err, dlock.ErrNotAcquired) {
			t.Errorf("healed: %v, want not acquired", err)
		}
	})
}

// The reasons for refused ticks reach the caller unchanged.
//
// Fails when acquire does not pass the tick on.
func TestTryAcquireTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{})
		at := time.Now()
		try := func(at time.Time) driver.Reason {
			lease, err := h.Semaphore("job", 2).TryAcquireTick(bg, driver.Tick{At: at, Max: 1})
			if err == nil {
				lease.Release(bg)
				return ""
			}
			held, ok := errors.AsType[*dlock.NotAcquiredError](err)
			if !ok {
				t.Fatal(err)
			}
			return held.Reason
		}
		for i, want := range []driver.Reason{"", driver.ReasonTickTaken} {
			if got := try(at); got != want {
				t.Errorf("attempt %d: %q, want %q", i, got, want)
			}
		}
		if got := try(at.Add(-time.Second)); got != driver.ReasonTickLate {
			t.Errorf("%q, want %q", got, driver.ReasonTickLate)
		}
		if got := try(at.Add(time.Hour)); got != driver.ReasonTickAhead {
			t.Errorf("%q, want %q", got, driver.ReasonTickAhead)
		}
	})
}

// When the caller's context ends, this counts neither as a failure nor as a refusal of the store.
// If the store made a grant nevertheless, the grant is released.
//
// Fails when acquire returns the StoreError without checking ctx, or does not call releaseLater for
// a cancelled caller.
func TestCallerGivesUp(t *testing.T) {
	reason := errors.New("shutting down")
	neither := func(t *testing.T, err error) {
		t.Helper()
		if _, failed := errors.AsType[*dlock.StoreError](err); failed || errors.Is(err, dlock.ErrNotAcquired) ||
			!errors.Is(err, reason) {
			t.Errorf("got %v (%T), want the cause of the context and nothing else", err, err)
		}
	}
	t.Run("before", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHost(t, memlock.New(), dlock.SessionOptions{})
			ctx, cancel := context.WithCancelCause(bg)
			cancel(reason)
			_, err := h.Mutex("job").TryAcquire(ctx)
			neither(t, err)
			_, err = h.Mutex("job").Acquire(ctx)
			neither(t, err)
			if n := h.faulty.Calls(dlocktest.OpAcquire); n != 0 || !h.Idle() {
				t.Errorf("%d calls, idle %v: the store was asked for a caller who had gone", n, h.Idle())
			}
		})
	})
	t.Run("during", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memlock.New()
			h := newHost(t, store, dlock.SessionOptions{TTL: time.Minute, StoreTimeout: timeout})
			h.faulty.Inject(dlocktest.SilentReply, dlocktest.OpAcquire)
			ctx, cancel := context.WithCancelCause(bg)
			time.AfterFunc(100*time.Millisecond, func() { cancel(reason) })
			wantAtMost(t, 100*time.Millisecond, "TryAcquire", func() {
				_, err := h.Semaphore("job", 1).TryAcquire(ctx)
				neither(t, err)
			})
			if n := h.faulty.Calls(dlocktest.OpAcquire); n != 1 {
				t.Errorf("%d calls, want 1", n)
			}
			if free(t, store, "job", 1) != 0 {
				t.Fatal("the test is wrong: nothing was granted")
			}
			advance(time.Minute/10 + time.Minute/20)
			if free(t, store, "job", 1) != 1 {
				t.Error("the grant was not given back")
			}
		})
	})
}

// I7: invalid answers of a store do no harm. A refusal without its type is still a refusal, and a
// panic is a failure.
//
// Fails when acquire recognizes only a *NotAcquiredError as a refusal (others became a StoreError
// that matched ErrNotAcquired).
func TestNonsenseFromAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{})
		for _, no := range []error{dlock.ErrNotAcquired,
			fmt.Errorf("wrapped: %w", &dlock.NotAcquiredError{Name: "job"})} {
			h.faulty.Inject(dlocktest.Error(no), dlocktest.OpAcquire)
			_, err := h.Semaphore("job", 1).TryAcquire(bg)
			if got, ok := errors.AsType[*dlock.NotAcquiredError](err); !ok || got.Name != "job" {
				t.Errorf("got %v (%T), want a *NotAcquiredError", err, err)
			}
			if _, failed := errors.AsType[*dlock.StoreError](err); failed {
				t.Errorf("%v is also a StoreError", err)
			}
		}
		if !h.Idle() {
			t.Error("a \"no\" leaves nothing to be given back")
		}
	})
}

// An invalid name or number is rejected without a call to the store, and Acquire does not retry it.
//
// Fails when Semaphore turns 0 slots into a mutex, or acquire does not validate.
func TestRefusedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{})
		for name, try := range map[string]func() (*dlock.Lease, error){
			"0 slots":       func() (*dlock.Lease, error) { return h.Semaphore("job", 0).TryAcquire(bg) },
			"-1 slots":      func() (*dlock.Lease, error) { return h.Semaphore("job", -1).TryAcquire(bg) },
			"10,001 slots":  func() (*dlock.Lease, error) { return h.Semaphore("job", driver.MaxSlots+1).Acquire(bg) },
			"no name":       func() (*dlock.Lease, error) { return h.Mutex("").Acquire(bg) },
			"a slot's name": func() (*dlock.Lease, error) { return h.Mutex("job:slot:1").TryAcquire(bg) },
			"an empty tick": func() (*dlock.Lease, error) {
				return h.Semaphore("job", 1).TryAcquireTick(bg, driver.Tick{})
			},
		} {
			lease, err := try()
			if lease != nil || err == nil {
				t.Errorf("%s: not refused", name)
			}
			if _, failed := errors.AsType[*dlock.StoreError](err); failed || errors.Is(err, dlock.ErrNotAcquired) {
				t.Errorf("%s: %v must be neither the store's failure nor its no", name, err)
			}
		}
		if n := h.faulty.Calls(dlocktest.OpAcquire); n != 0 {
			t.Errorf("the store was asked %d times", n)
		}
	})
}

// Acquire gets the slot soon after its release, even after a long wait.
//
// Fails when the pause grows without bound (maxPause one minute).
func TestAcquireWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		a, b := newHost(t, store, dlock.SessionOptions{}), newHost(t, store, dlock.SessionOptions{})
		first := a.take(t, "job", 1)
		time.AfterFunc(time.Minute, func() { first.Release(bg) })
		start := time.Now()
		second, err := b.Semaphore("job", 1).Acquire(bg)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < time.Minute || took > time.Minute+1500*time.Millisecond {
			t.Errorf("got it after %v, want within 1.5 s of its release after a minute", took)
		}
		wantHeld(t, second)
		// Pauses of about 10 ms, 20 ms, …, 1 s, 1 s give about 65 calls a minute.
		if n := b.faulty.Calls(dlocktest.OpAcquire); n > 140 {
			t.Errorf("%d calls in a minute", n)
		}
	})
}

// A waiter that asks only once a second still gets a dead host's slot within half a second of the
// end of its lease.
//
// Fails when a waiter ignores when the lease ends.
func TestAcquireWaitsForTheEndOfALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		h := newHost(t, store, dlock.SessionOptions{})
		for i := range 100 {
			name, lasts := fmt.Sprint("job-", i), 4*time.Second
			_, err := store.TryAcquire(bg, driver.Request{Name: name, Token: "of-the-dead", TTL: lasts,
				Holder: dlock.Holder{Host: "dead"}})
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			lease, err := h.Mutex(name).Acquire(bg)
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took < lasts || took > lasts+500*time.Millisecond {
				t.Errorf("got it %v after the holder died, want %v to half a second more", took, lasts)
			}
			if err := lease.Release(bg); err != nil {
				t.Error(err)
			}
		}
	})
}

// Acquire keeps waiting while the store fails.
//
// Fails when wait returns a StoreError.
func TestAcquireWaitsOutAStoreFailure(t *testing.T) {
	for name, fault := range map[string]dlocktest.Fault{"fails": down, "hangs": dlocktest.Hang,
		"panics": dlocktest.Panic, "loses replies": dlocktest.LostReply} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				h := newHost(t, store, dlock.SessionOptions{})
				h.faulty.Inject(fault)
				time.AfterFunc(time.Minute, h.faulty.Heal)
				var lease *dlock.Lease
				wantAtMost(t, time.Minute+1500*time.Millisecond+ttl, "Acquire", func() {
					var err error
					if lease, err = h.Mutex("job").Acquire(bg); err != nil {
						t.Fatal(err)
					}
				})
				advance(time.Minute)
				wantHeld(t, lease)
			})
		})
	}
}

// Acquire returns when its context ends, without delay. Its error has the context's cause and the
// store's last answer.
//
// Fails when wait sleeps without checking ctx, or returns only one of the two errors.
func TestAcquireIsBoundedByItsContext(t *testing.T) {
	cause := errors.New("no longer wanted")
	for name, c := range map[string]struct {
		ctx  func() (context.Context, context.CancelFunc)
		want error
	}{
		"deadline": {func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(bg, 2500*time.Millisecond)
		}, context.DeadlineExceeded},
		"cause": {func() (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(bg, 2500*time.Millisecond, cause)
		}, cause},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				a, b := newHost(t, store, dlock.SessionOptions{}), newHost(t, store, dlock.SessionOptions{})
				a.take(t, "job", 1)
				for _, fault := range []dlocktest.Fault{{}, down, dlocktest.Hang} {
					b.faulty.Inject(fault, dlocktest.OpAcquire)
					ctx, cancel := c.ctx()
					defer cancel()
					start := time.Now()
					_, err := b.Semaphore("job", 1).Acquire(ctx)
					if took := time.Since(start); took != 2500*time.Millisecond {
						t.Errorf("took %v, want 2.5s", took)
					}
					if !errors.Is(err, c.want) {
						t.Errorf("%v does not match %v", err, c.want)
					}
					_, no := errors.AsType[*dlock.NotAcquiredError](err)
					_, failed := errors.AsType[*dlock.StoreError](err)
					if full := fault == (dlocktest.Fault{}); no != full || failed == full {
						t.Errorf("%v: want the last answer of the store in it", err)
					}
				}
			})
		})
	}
}

// If a store grants something else than the request, this does not count as a grant. The session
// releases it by its token.
//
// Fails when ask does not check the Grant.
func TestNonsenseGrantsAreErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for i, spoil := range []func(*driver.Grant){
			func(g *driver.Grant) { *g = driver.Grant{} },
			func(g *driver.Grant) { g.Slot = 2 },
			func(g *driver.Grant) { g.Slot = -1 },
			func(g *driver.Grant) { g.Token = "another" },
			func(g *driver.Grant) { g.Name = "bank" },
			func(g *driver.Grant) { g.Slots = 0 },
		} {
			session, err := dlock.NewSession(&spoiling{DistributedLock: memlock.New(), spoil: spoil},
				dlock.SessionOptions{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = session.Semaphore("a", 2).TryAcquire(t.Context())
			if _, ok := errors.AsType[*dlock.StoreError](err); !ok {
				t.Errorf("%d: err %v, want a *StoreError", i, err)
			}
			if err := session.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		nothing, err := dlock.NewSession(&spoiling{DistributedLock: memlock.New(), refuse: true},
			dlock.SessionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nothing.Mutex("a").TryAcquire(t.Context()); err == nil || errors.Is(err, dlock.ErrNotAcquired) {
			t.Errorf("a nil *NotAcquiredError: %v", err)
		}
		if err := nothing.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

type spoiling struct {
	dlock.DistributedLock
	spoil  func(*driver.Grant)
	refuse bool
}

func (s *spoiling) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if s.refuse {
		var no *dlock.NotAcquiredError
		return driver.Grant{}, no
	}
	g, err := s.DistributedLock.TryAcquire(ctx, req)
	s.spoil(&g)
	return g, err
}
