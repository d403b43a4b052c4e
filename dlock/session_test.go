package dlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
)

// choosy is a store that checks its settings and limits TTLs.
type choosy struct {
	dlock.DistributedLock
	fault  error
	maxTTL time.Duration
}

func (c choosy) Check() error          { return c.fault }
func (c choosy) MaxTTL() time.Duration { return c.maxTTL }

// I11: NewSession reports all faults at once and says how to fix each. It does not call the store.
//
// Fails when NewSession stops at the first fault, or does not call Check or MaxTTL.
func TestNewSessionReportsAllFaults(t *testing.T) {
	store := memlock.New()
	for name, c := range map[string]struct {
		store dlock.DistributedLock
		opts  dlock.SessionOptions
		want  []string // empty if there is no fault
	}{
		"zero options": {store, dlock.SessionOptions{}, nil},
		"shortest TTL": {store, dlock.SessionOptions{TTL: 3 * time.Second}, nil},
		"no store":     {nil, dlock.SessionOptions{}, []string{"no store"}},
		"TTL too short": {store, dlock.SessionOptions{TTL: 3*time.Second - 3},
			[]string{"TTL 2.999999997s", "use 3s or more"}},
		"TTL negative": {store, dlock.SessionOptions{TTL: -time.Second}, []string{"TTL -1s"}},
		"timeout too long": {store, dlock.SessionOptions{StoreTimeout: 6 * time.Second},
			[]string{"StoreTimeout (6s)", "use 18s or more"}},
		"timeout too short": {store, dlock.SessionOptions{StoreTimeout: time.Microsecond},
			[]string{"StoreTimeout 1µs"}},
		"both negative": {store, dlock.SessionOptions{TTL: -5 * time.Second, StoreTimeout: -time.Second},
			[]string{"StoreTimeout -1s", "TTL -5s", "use 3ms or more"}},
		"TTL fits the store": {choosy{store, nil, 15 * time.Second}, dlock.SessionOptions{}, nil},
		"TTL over the store's": {choosy{store, nil, 14 * time.Second}, dlock.SessionOptions{},
			[]string{"TTL 15s", "at most 14s", "raise QuarantineTTL"}},
		"store's settings": {choosy{store, errDown, time.Hour}, dlock.SessionOptions{}, []string{errDown.Error()}},
		"everything": {choosy{store, errDown, time.Second}, dlock.SessionOptions{TTL: 2 * time.Second,
			StoreTimeout: time.Microsecond},
			[]string{"StoreTimeout 1µs", "at most 1s", errDown.Error()}},
		"everything but the store": {nil, dlock.SessionOptions{TTL: time.Second}, []string{"TTL 1s", "no store"}},
	} {
		t.Run(name, func(t *testing.T) {
			session, err := dlock.NewSession(c.store, c.opts)
			if len(c.want) == 0 {
				if err != nil {
					t.Fatal(err)
				}
				session.Close(bg)
				return
			}
			if err == nil || session != nil {
				t.Fatal("no fault found")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			if c.opts.Validate() == nil && strings.HasPrefix(c.want[0], "TTL -") {
				t.Error("Validate found nothing")
			}
		})
	}
}

// The defaults match the field comments.
//
// Fails when a default is changed only in the code.
func TestDefaults(t *testing.T) {
	s, err := dlock.NewSession(memlock.New(), dlock.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(bg)
	if s.TTL() != 15*time.Second || s.StoreTimeout() != time.Second {
		t.Errorf("TTL %v, StoreTimeout %v, want 15s and 1s", s.TTL(), s.StoreTimeout())
	}
	testkit.CheckDefaults(t, ".", map[string]any{"SessionOptions.TTL": s.TTL(),
		"SessionOptions.StoreTimeout": s.StoreTimeout()})
	if h := s.Holder(); h.Host == "" || h.PID == 0 || h.ID == "" {
		t.Errorf("holder %v, want one that describes this process", h)
	}
}

// I6: one TTL after the last extend that reached the store, and not before, the slot of a host can
// be granted again. The host may have died, so that its calls no longer arrive, or it closed its
// session without a release.
//
// Fails when Close leaves the heartbeat running, or when a request's TTL is not the session's.
func TestI6_AbandonedSlot(t *testing.T) {
	for name, abandon := range map[string]func(t *testing.T, h host){
		"died":   func(t *testing.T, h host) { h.faulty.Inject(down) },
		"frozen": func(t *testing.T, h host) { h.faulty.Inject(dlocktest.Hang) },
		"closed": func(t *testing.T, h host) {
			if err := h.Close(bg); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				h := newHost(t, store, dlock.SessionOptions{})
				lease := h.take(t, "job", 1)
				rival := newRival(t, store, lease)
				advance(3*beat + beat/2)
				beats := h.spy.extended()
				last := beats[len(beats)-1].at
				abandon(t, h)
				rival.check(t)
				if after := rival.at.Sub(last); after != ttl {
					t.Errorf("granted again %v after the last extend, want %v", after, ttl)
				}
				if lost, ok := errors.AsType[*dlock.LostError](lease.Err()); !ok || lost.Silent != (name != "closed") {
					t.Errorf("%v: Silent is for a store that does not answer", lease.Err())
				}
			})
		})
	}
}

// I7: no call takes longer than StoreTimeout even if the store hangs, and the session recovers
// without a restart.
//
// Fails when ask, releaseNow or Close has no deadline, or when acquire gives its second request a
// whole StoreTimeout.
func TestI7_NoCallTakesLongerThanStoreTimeout(t *testing.T) {
	for name, fault := range map[string]dlocktest.Fault{
		"hangs": dlocktest.Hang, "is slow": dlocktest.Slow(10 * time.Second),
		"gets it late": dlocktest.Late(10 * time.Second),
		"is silent":    dlocktest.SilentReply, "is nearly in time": dlocktest.Slow(timeout * 3 / 4),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				h := newHost(t, store, dlock.SessionOptions{})
				released, running := h.take(t, "released", 1), h.take(t, "running", 1)
				for round := range 3 {
					h.faulty.Inject(fault)
					wantAtMost(t, timeout, "TryAcquire", func() {
						if _, err := h.Semaphore("job", 1).TryAcquire(bg); err == nil {
							t.Error("acquired")
						}
					})
					if round == 0 {
						wantAtMost(t, timeout, "Release", func() { released.Release(bg) })
					}
					wantAtMost(t, 1300*time.Millisecond, "Acquire", func() {
						ctx, cancel := context.WithTimeout(bg, 1300*time.Millisecond)
						defer cancel()
						if _, err := h.Semaphore("job", 1).Acquire(ctx); err == nil {
							t.Error("acquired")
						}
					})
					h.faulty.Heal()
					advance(2 * ttl)
					lease, err := h.Semaphore("job", 1).TryAcquire(bg)
					if err != nil {
						t.Fatalf("after the store came back: %v", err)
					}
					if err := lease.Release(bg); err != nil {
						t.Fatal(err)
					}
				}
				wantHeld(t, running)

				h.faulty.Inject(fault)
				h.Semaphore("job", 1).TryAcquire(bg) // leaves a release for Close
				wantAtMost(t, timeout, "Close", func() {
					if err := h.Close(bg); (err == nil) != (name == "is nearly in time") {
						t.Errorf("Close: %v", err)
					}
				})
			})
		})
	}
}

// I7: if a heartbeat of many batches hangs, Close does not wait for it.
//
// Fails when Close does not end life (it then took a second), or when beat continues with the next
// batch afterwards.
func TestI7_CloseDuringAHeartbeatThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{})
		var leases []*dlock.Lease
		for _, name := range names("job", 3*dlock.BeatBatch) {
			leases = append(leases, h.take(t, name, 1))
		}
		h.faulty.Inject(dlocktest.Hang)
		advance(beat/3 + 100*time.Millisecond) // a third of the leases have been sent for renewal
		wantAtMost(t, 0, "Close", func() {
			if err := h.Close(bg); err != nil {
				t.Error(err)
			}
		})
		if n := len(h.spy.extended()); n != 1 {
			t.Errorf("%d heartbeat calls, want the one that was going on", n)
		}
		advance(trusted)
		for _, l := range leases {
			if how := wantLost(t, l); how.Silent {
				t.Fatalf("%v: lost because the session was closed, not because the store was silent", how)
			}
		}
	})
}

// A trust window may close while Close makes the pending releases.
//
// Fails under the race detector if Close writes fields without the lock that the end of a lease
// reads.
func TestWindowClosesDuringClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{})
		lease := h.take(t, "job", 1)
		h.faulty.Inject(dlocktest.Hang)
		advance(trusted - 1500*time.Millisecond)
		h.Mutex("unsettled").TryAcquire(bg) // takes a second
		if err := h.Close(bg); err == nil { // takes another second
			t.Error("the test is wrong: nothing was left to give back")
		}
		advance(time.Second)
		wantLost(t, lease)
	})
}

// Close makes the pending releases, once and in batches, and ends the session. The end of the
// bubble shows that no goroutine remains.
//
// Fails when Close does not call releasePending, stops with its caller's context, or when acquire
// does not check closed.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		h := newHost(t, store, dlock.SessionOptions{})
		h.faulty.Inject(dlocktest.LostReply, dlocktest.OpAcquire)
		for _, name := range names("job", 1200) {
			if _, err := h.Semaphore(name, 1).TryAcquire(bg); err == nil {
				t.Fatal("acquired")
			}
		}
		if free(t, store, "job-7", 1) != 0 {
			t.Fatal("the test is wrong: nothing was granted")
		}
		ctx, cancel := context.WithCancel(bg)
		cancel()
		if err := h.Close(ctx); err != nil {
			t.Errorf("Close on a cancelled context: %v", err)
		}
		for _, name := range names("job", 1200) {
			if free(t, store, name, 1) != 1 {
				t.Fatalf("%s was not given back", name)
			}
		}
		calls := h.spy.released()
		if len(calls) != 3 || len(calls[0].grants) != dlock.BeatBatch {
			t.Errorf("%d releases, want 3 of at most %d grants", len(calls), dlock.BeatBatch)
		}

		h.faulty.Heal()
		asked := h.faulty.Calls(dlocktest.OpAcquire)
		if _, err := h.Mutex("job").TryAcquire(bg); err != dlock.ErrClosed {
			t.Errorf("TryAcquire after Close: %v, want ErrClosed", err)
		}
		if _, err := h.Mutex("job").Acquire(bg); err != dlock.ErrClosed {
			t.Errorf("Acquire after Close: %v, want ErrClosed at once", err)
		}
		if n := h.faulty.Calls(dlocktest.OpAcquire); n != asked {
			t.Error("the store was asked after Close")
		}
		if err := h.Close(bg); err != nil {
			t.Errorf("Close again: %v", err)
		}
		if !h.Idle() || len(h.spy.released()) != 3 {
			t.Error("the session goes on after Close")
		}
	})
}

// Close returns an error if a release failed. The lease then expires.
//
// Fails when Close ignores the error or an Unknown.
func TestCloseWhileTheStoreIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		h := newHost(t, store, dlock.SessionOptions{})
		h.faulty.InjectN(2, dlocktest.LostReply, dlocktest.OpAcquire)
		h.Mutex("job").TryAcquire(bg)
		h.faulty.Inject(down)
		if err := h.Close(bg); !errors.Is(err, errDown) {
			t.Errorf("Close: %v, want what the store said", err)
		}
		advance(time.Hour)
		if n := h.faulty.Calls(dlocktest.OpRelease); n != 1 {
			t.Errorf("%d releases, want 1", n)
		}

		unknown := newHost(t, &unknownReleases{DistributedLock: store, left: 1}, dlock.SessionOptions{})
		unknown.faulty.InjectN(2, dlocktest.LostReply, dlocktest.OpAcquire)
		unknown.Mutex("job").TryAcquire(bg)
		if err := unknown.Close(bg); !errors.Is(err, errDown) {
			t.Errorf("Close: %v, want what the store said about the grant", err)
		}
	})
}

// If a lease is held when its session is closed, it is no longer renewed and expires on time. It
// can still be released.
//
// Fails when Close ends the leases, or when beat runs after Close.
func TestCloseWhileHolding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		h := newHost(t, store, dlock.SessionOptions{})
		kept, released := h.take(t, "kept", 1), h.take(t, "released", 1)
		advance(time.Second)
		if err := h.Close(bg); err != nil {
			t.Error(err)
		}
		advance(trusted - time.Second - time.Nanosecond)
		wantHeld(t, kept)
		wantHeld(t, released)
		if err := released.Release(bg); err != nil || free(t, store, "released", 1) != 1 {
			t.Errorf("Release after Close: %v, %d free", err, free(t, store, "released", 1))
		}
		advance(time.Nanosecond)
		wantLost(t, kept)
		if n := len(h.spy.extended()); n != 0 {
			t.Errorf("%d heartbeats after Close", n)
		}
	})
}

// If a session is closed during an acquire, the acquire returns ErrClosed and releases its grant at
// once, because a closed session would never renew it.
//
// Fails when acquire does not release the grant after add has refused it: the slot then stays taken
// for a TTL.
func TestCloseDuringAnAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		h := newHost(t, store, dlock.SessionOptions{})
		h.faulty.Inject(dlocktest.Slow(400*time.Millisecond), dlocktest.OpAcquire)
		time.AfterFunc(200*time.Millisecond, func() { h.Close(bg) })
		lease, err := h.Semaphore("job", 1).TryAcquire(bg)
		if lease != nil || err != dlock.ErrClosed {
			t.Errorf("got %v, %v, want ErrClosed", lease, err)
		}
		if free(t, store, "job", 1) != 1 {
			t.Error("the grant was not given back")
		}
		if !h.Idle() {
			t.Error("the session goes on after Close")
		}
	})
	// Without an answer, the session releases nothing, and a grant that the store may have made
	// expires. (Fails when releaseLater does not check closed.)
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{})
		h.faulty.Inject(dlocktest.Hang, dlocktest.OpAcquire)
		time.AfterFunc(200*time.Millisecond, func() { h.Close(bg) })
		_, err := h.Semaphore("job", 1).TryAcquire(bg)
		wantStoreError(t, err, dlock.StoreOpAcquire)
		advance(time.Hour)
		if !h.Idle() || h.faulty.Calls(dlocktest.OpRelease) != 0 {
			t.Error("the session goes on after Close")
		}
	})
}

// NewSession starts nothing and does not call the store.
//
// Fails when NewSession starts a timer or calls the store.
func TestNewSessionStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{})
		advance(time.Hour)
		calls := h.faulty.Calls(dlocktest.OpAcquire) + h.faulty.Calls(dlocktest.OpExtend) +
			h.faulty.Calls(dlocktest.OpRelease)
		if !h.Idle() || calls != 0 {
			t.Error("something was started")
		}
	})
}
