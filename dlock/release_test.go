package dlock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// I5: a host that has lost its slot neither extends nor releases the new holder's lease, and gets
// ErrLost.
//
// Fails when releaseNow returns nil for Lost. If the store released by name alone (memlock's find
// ignoring the token), the new holder would lose its slot.
func TestI5_ReleaseAfterLossTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		a := newHost(t, store, dlock.SessionOptions{})
		b := newHost(t, store, dlock.SessionOptions{})
		first := a.take(t, "job", 1)
		a.faulty.Inject(down, dlocktest.OpExtend)
		second, err := b.Semaphore("job", 1).Acquire(bg)
		if err != nil {
			t.Fatal(err)
		}
		a.faulty.Heal()
		if err := first.Release(bg); !errors.Is(err, dlock.ErrLost) {
			t.Errorf("Release after the loss: %v, want ErrLost", err)
		}
		if cause := context.Cause(first.Context()); !errors.Is(cause, dlock.ErrLost) {
			t.Errorf("cause %v: Release must not turn a loss into a release", cause)
		}
		advance(time.Minute)
		wantHeld(t, second)
		if free(t, store, "job", 1) != 0 {
			t.Error("the new holder's slot is free")
		}
		if err := second.Release(bg); err != nil {
			t.Error(err)
		}
	})
}

// I5: a release of one lease never names another lease.
//
// Fails when releaseNow sends the grants of all leases.
func TestI5_ReleaseNamesOneLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		h := newHost(t, store, dlock.SessionOptions{})
		a, b := h.take(t, "job", 2), h.take(t, "job", 2)
		if a.Slot() == b.Slot() || a.Fence() == b.Fence() {
			t.Fatalf("slots %d and %d, fences %d and %d: want two", a.Slot(), b.Slot(), a.Fence(), b.Fence())
		}
		if err := a.Release(bg); err != nil {
			t.Fatal(err)
		}
		wantHeld(t, b)
		advance(time.Minute)
		wantHeld(t, b)
		if free(t, store, "job", 2) != 1 {
			t.Error("want one slot free")
		}
		calls := h.spy.released()
		if len(calls) != 1 || len(calls[0].grants) != 1 {
			t.Errorf("release calls %v, want one of one grant", calls)
		}
		for _, c := range h.spy.extended() {
			if len(c.grants) != 1 || c.grants[0].Slot != b.Slot() {
				t.Errorf("extended %v, want slot %d", c.grants, b.Slot())
			}
		}
	})
}

// I2: when the release reaches the store, the lease has already ended here, because another holder
// may start at that moment.
//
// Fails when Release calls end after releaseNow.
func TestI2_ReleaseEndsTheLeaseFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{})
		lease := h.take(t, "job", 1)
		h.spy.onRelease = func(context.Context) {
			if lease.Valid() || context.Cause(lease.Context()) != dlock.ErrReleased {
				t.Errorf("Valid %v, cause %v when the release was sent", lease.Valid(), context.Cause(lease.Context()))
			}
		}
		if err := lease.Release(bg); err != nil {
			t.Error(err)
		}
		if lease.Err() != dlock.ErrReleased {
			t.Errorf("Err %v, want ErrReleased", lease.Err())
		}
		if !h.Idle() {
			t.Error("the session is not idle after its only lease was released")
		}
	})
}

// A second Release returns the result of the first and frees nothing, because the slot may have a
// new holder.
//
// Fails when Release calls releaseNow without the Once.
func TestI5_ReleaseTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		h := newHost(t, store, dlock.SessionOptions{})
		lease := h.take(t, "job", 1)
		if err := lease.Release(bg); err != nil {
			t.Error(err)
		}
		next := h.take(t, "job", 1)
		if err := lease.Release(bg); err != nil {
			t.Errorf("Release again: %v, want what the first returned: nil", err)
		}
		wantHeld(t, next)
		if n := h.faulty.Calls(dlocktest.OpRelease); n != 1 {
			t.Errorf("%d calls of Release, want 1", n)
		}

		h.faulty.Inject(down, dlocktest.OpRelease)
		first, second := next.Release(bg), next.Release(bg)
		wantStoreError(t, first, dlock.StoreOpRelease)
		if first != second {
			t.Errorf("the second Release returned %v, the first %v", second, first)
		}
	})
}

// Ten concurrent Releases send one request, and all of them wait for its answer. The test runs in
// real time, because waiting for a sync.Once stops a bubble's clock.
//
// Fails as the test above does, or if the others return before the first has its answer.
func TestI5_ReleaseAtTheSameTime(t *testing.T) {
	h := newHost(t, memlock.New(), dlock.SessionOptions{})
	lease := h.take(t, "job", 1)
	h.faulty.Inject(dlocktest.Slow(50*time.Millisecond), dlocktest.OpRelease)
	start := time.Now()
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if err := lease.Release(bg); err != nil {
				t.Error(err)
			}
			if took := time.Since(start); took < 50*time.Millisecond {
				t.Errorf("returned after %v, before the store had answered", took)
			}
		})
	}
	all.Wait()
	if n := h.faulty.Calls(dlocktest.OpRelease); n != 1 {
		t.Errorf("%d calls of Release, want 1", n)
	}
}

// A heartbeat that is answered after the release changes nothing, whatever the answer.
//
// Fails when end does not check the state: "lost" would become the cause of a released lease, or
// the reverse.
func TestReleaseDuringAHeartbeat(t *testing.T) {
	for _, outcome := range []driver.GrantOutcome{driver.GrantOK, driver.GrantLost, driver.GrantUnknown} {
		synctest.Test(t, func(t *testing.T) {
			h := newHost(t, memlock.New(), dlock.SessionOptions{})
			leases := make(chan *dlock.Lease, 1)
			h.spy.onExtend = func(r []driver.Result, err error) ([]driver.Result, error) {
				lease := <-leases
				if err := lease.Release(bg); err != nil {
					t.Error(err)
				}
				r[0].Outcome = outcome
				return r, err
			}
			lease := h.take(t, "job", 1)
			leases <- lease
			advance(beat)
			if lease.Valid() || lease.Err() != dlock.ErrReleased {
				t.Errorf("%v: Valid %v, Err %v, want it released", outcome, lease.Valid(), lease.Err())
			}
			advance(time.Hour)
			if n := len(h.spy.extended()); n != 1 || !h.Idle() {
				t.Errorf("%v: %d heartbeats, idle %v: want nothing after the release", outcome, n, h.Idle())
			}
		})
	}
}

// The release has its own context, because the run's context has usually ended. The values are
// kept, for tracing.
//
// Fails when releaseNow derives its context from ctx without WithoutCancel, or from
// context.Background.
func TestReleaseOnACancelledContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		store := memlock.New()
		h := newHost(t, store, dlock.SessionOptions{})
		lease := h.take(t, "job", 1)
		h.spy.onRelease = func(ctx context.Context) {
			if ctx.Value(key{}) != "trace" {
				t.Error("the values of the context did not reach the store")
			}
			if at, ok := ctx.Deadline(); !ok || time.Until(at) > timeout {
				t.Errorf("deadline %v %v, want one within StoreTimeout", at, ok)
			}
		}
		ctx, cancel := context.WithCancel(context.WithValue(bg, key{}, "trace"))
		cancel()
		if err := lease.Release(ctx); err != nil {
			t.Error(err)
		}
		if free(t, store, "job", 1) != 1 {
			t.Error("the slot is not free")
		}
	})
}

// The lease's context has the values of the acquire's context but does not end with it.
//
// Fails when Context derives the context without WithoutCancel, or from context.Background.
func TestContextOutlivesTheAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		h := newHost(t, memlock.New(), dlock.SessionOptions{})
		ctx, cancel := context.WithTimeout(context.WithValue(bg, key{}, "trace"), time.Second)
		defer cancel()
		lease, err := h.Mutex("job").TryAcquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if lease.Name() != "job" || lease.Slot() != 0 || lease.Fence() == 0 || !lease.AcquiredAt().Equal(time.Now()) {
			t.Errorf("name %q, slot %d, fence %d, acquired at %v", lease.Name(), lease.Slot(), lease.Fence(),
				lease.AcquiredAt())
		}
		advance(time.Minute)
		wantHeld(t, lease)
		if lease.Context().Value(key{}) != "trace" {
			t.Error("the context lost its values")
		}
	})
}

// I7: while the store is down, Release returns within StoreTimeout. Soon after the store is back,
// the slot is freed by its token, long before the lease would end and without any call by the user.
//
// Fails when releaseNow does not call releaseLater, or when beat does not call releasePending.
func TestI7_ReleaseWhileTheStoreIsDown(t *testing.T) {
	for name, fault := range map[string]dlocktest.Fault{
		"hangs": dlocktest.Hang, "fails": down, "panics": dlocktest.Panic, "answers too short": dlocktest.Short,
		"is silent": dlocktest.SilentReply, "loses the reply": dlocktest.LostReply,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				h := newHost(t, store, dlock.SessionOptions{TTL: time.Minute, StoreTimeout: timeout})
				lease := h.take(t, "job", 1)
				advance(time.Second)
				h.faulty.Inject(fault)
				wantAtMost(t, timeout, "Release", func() { wantStoreError(t, lease.Release(bg), dlock.StoreOpRelease) })
				if lease.Valid() || lease.Err() != dlock.ErrReleased {
					t.Errorf("Valid %v, Err %v: released here whatever the store says", lease.Valid(), lease.Err())
				}
				advance(20 * time.Second)
				h.faulty.Heal()
				advance(time.Minute/10 + time.Minute/20)
				if free(t, store, "job", 1) != 1 {
					t.Error("the slot was not freed after the store came back")
				}
				if !h.Idle() {
					t.Error("the session still tries")
				}
			})
		})
	}
}

// If a store answers Unknown for one grant of a release, that grant is not released yet.
//
// Fails when releaseNow checks only for Lost, or releasePending drops Unknown grants.
func TestReleaseUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		unknown := &unknownReleases{DistributedLock: store, left: 3}
		h := newHost(t, unknown, dlock.SessionOptions{TTL: time.Minute, StoreTimeout: timeout})
		err := h.take(t, "job", 1).Release(bg)
		wantStoreError(t, err, dlock.StoreOpRelease)
		if !errors.Is(err, errDown) {
			t.Errorf("%v does not carry what the store said", err)
		}
		advance(3 * (time.Minute/10 + time.Minute/20))
		if free(t, store, "job", 1) != 1 || !h.Idle() {
			t.Error("the slot was not freed when the store knew again")
		}
	})
}

// unknownReleases answers Unknown for the first grants to release.
type unknownReleases struct {
	dlock.DistributedLock
	left int
}

func (u *unknownReleases) Release(ctx context.Context, grants ...driver.Grant) ([]driver.Result, error) {
	if u.left--; u.left >= 0 {
		return []driver.Result{{Outcome: driver.GrantUnknown, Err: errDown}}, nil
	}
	return u.DistributedLock.Release(ctx, grants...)
}

// If a caller asks for the context only after the lease has ended, the context has ended, too, with
// the cause.
//
// Fails when Context does not check the state.
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

// I2: a context that exists at the release ends before the store is called.
//
// Fails when Release does not call cancelContext.
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
