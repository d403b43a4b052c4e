package dlock_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// I2: time during which the machine slept counts, although Go's timers and monotonic clock stopped.
// Valid is false immediately, and the context ends within a second of the machine running again.
// Another holder may be working by then, so the loss is not silent even if earlier heartbeats
// failed.
//
// Fails when since ignores slept (Valid), when watch does not start the sleep timer (context), and
// when `late` is removed (Silent).
func TestI2_MachineSlept(t *testing.T) {
	for _, heartbeat := range []dlocktest.Fault{{}, down, dlocktest.Hang} {
		sleep := dlock.FakeSleep(t, true)
		synctest.Test(t, func(t *testing.T) {
			h := newHost(t, memlock.New(), dlock.SessionOptions{TTL: 15 * time.Second, StoreTimeout: time.Second})
			h.faulty.Inject(heartbeat, dlocktest.OpExtend)
			lease := h.take(t, "job", 1)
			advance(5500 * time.Millisecond) // the heartbeat is waiting for the store, which hangs
			wantHeld(t, lease)

			sleep(time.Minute)
			if lease.Valid() {
				t.Error("valid after the machine slept for a minute")
			}
			advance(time.Second)
			if how := wantLost(t, lease); how.Silent {
				t.Errorf("%v: Silent although another host may have the slot", how)
			}
			if !h.Idle() {
				t.Error("the session still has something to do for a lost lease")
			}
		})
	}
}

// After a sleep shorter than the rest of the window, the lease stays held and is renewed
// immediately. Its window is shorter by the duration of the sleep.
//
// Fails when checkSleep does not call renewNow (no early renewal) or expireLeases (the context ends
// 5 s late).
func TestI2_MachineNapped(t *testing.T) {
	sleep := dlock.FakeSleep(t, true)
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{TTL: 15 * time.Second, StoreTimeout: time.Second})
		lease := h.take(t, "job", 1)
		lease.Done() // a caller waits for the lease to end
		advance(time.Second)
		sleep(5 * time.Second)
		wantHeld(t, lease)
		advance(time.Second)
		if n := len(h.spy.extended()); n != 1 {
			t.Errorf("%d heartbeats within a second after waking up, want 1", n)
		}
		wantHeld(t, lease)
		advance(time.Minute)
		wantHeld(t, lease)
	})
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{TTL: 15 * time.Second, StoreTimeout: time.Second})
		h.faulty.Inject(down, dlocktest.OpExtend)
		lease := h.take(t, "job", 1)
		lease.Done() // a caller waits for the lease to end
		advance(time.Second)
		sleep(5 * time.Second)
		advance(8*time.Second - time.Nanosecond) // 1 s + 5 s asleep + 8 s = 14 s
		wantHeld(t, lease)
		advance(time.Nanosecond)
		wantLost(t, lease)
	})
}

// Sleep is noticed within a second even if the context is created only afterwards, and even after
// the session was closed.
//
// Fails when watch does not call expireLeases, and if Close stops the sleep timer.
func TestI2_MachineSleptMeanwhile(t *testing.T) {
	sleep := dlock.FakeSleep(t, true)
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{TTL: 15 * time.Second, StoreTimeout: time.Second})
		lease := h.take(t, "job", 1)
		sleep(time.Minute)
		if lease.Context().Err() == nil {
			t.Error("the context of a lease whose window has closed has not ended")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{TTL: 15 * time.Second, StoreTimeout: time.Second})
		lease := h.take(t, "job", 1)
		ctx := lease.Context()
		if err := h.Close(bg); err != nil {
			t.Fatal(err)
		}
		sleep(time.Minute)
		advance(time.Second)
		if ctx.Err() == nil {
			t.Error("the session is closed, and the context of its lease has not ended")
		}
	})
}

// Where sleep can only be estimated from the wall clock, a step of that clock makes the lease
// doubtful, not lost. Valid is false until a heartbeat, which is sent immediately, has asked the
// store.
//
// Fails when check ignores suspendIsExact (the step cancels the context), or when renewNow does
// nothing (expireLeases and checkSleep both call it).
func TestI2_WallClockStepped(t *testing.T) {
	const renewed = 700 * time.Millisecond // time since the renewal; the next beat is more than a second away
	setUp := func(t *testing.T) (host, *memlock.Store, *dlock.Lease) {
		store := memlock.New()
		h := newHost(t, store, dlock.SessionOptions{})
		lease := h.take(t, "job", 1)
		lease.Done() // a caller waits for the lease to end
		advance(beat + renewed)
		return h, store, lease
	}
	t.Run("the store still has it", func(t *testing.T) {
		step := dlock.FakeSleep(t, false)
		synctest.Test(t, func(t *testing.T) {
			h, _, lease := setUp(t)
			before := len(h.spy.extended())
			step(time.Hour)
			if lease.Valid() {
				t.Error("valid although the machine may have slept for an hour")
			}
			advance(time.Second)
			wantHeld(t, lease)
			if n := len(h.spy.extended()) - before; n == 0 {
				t.Error("no heartbeat within a second")
			}
		})
	})
	t.Run("the store granted it to another", func(t *testing.T) {
		step := dlock.FakeSleep(t, false)
		synctest.Test(t, func(t *testing.T) {
			h, store, lease := setUp(t)
			store.Release(bg, h.spy.granted())
			step(time.Hour)
			advance(time.Second)
			if how := wantLost(t, lease); how.Silent {
				t.Errorf("%v: Silent although the store said so", how)
			}
		})
	})
	t.Run("the store is down", func(t *testing.T) {
		step := dlock.FakeSleep(t, false)
		synctest.Test(t, func(t *testing.T) {
			h, _, lease := setUp(t)
			h.faulty.Inject(down, dlocktest.OpExtend)
			step(time.Hour)
			advance(trusted - renewed - time.Nanosecond)
			if lease.Valid() || lease.Err() != nil {
				t.Errorf("Valid %v, Err %v: want the lease in doubt", lease.Valid(), lease.Err())
			}
			advance(time.Nanosecond)
			wantLost(t, lease)
		})
	})
	// Fails when since allows a negative sleep.
	t.Run("backwards", func(t *testing.T) {
		step := dlock.FakeSleep(t, false)
		synctest.Test(t, func(t *testing.T) {
			h, _, lease := setUp(t)
			h.faulty.Inject(down, dlocktest.OpExtend)
			step(-time.Hour)
			wantHeld(t, lease)
			advance(trusted - renewed - time.Nanosecond)
			wantHeld(t, lease)
			advance(time.Nanosecond)
			wantLost(t, lease)
		})
	})
}

// A clock jitter of a millisecond is not sleep and causes no heartbeats.
//
// Fails when sleepNoise is 0.
func TestClockNoiseIsNotSleep(t *testing.T) {
	sleep := dlock.FakeSleep(t, true)
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{})
		h.take(t, "job", 1)
		for range 60 {
			sleep(time.Millisecond)
			advance(500 * time.Millisecond)
			sleep(-time.Millisecond)
			advance(500 * time.Millisecond)
		}
		if n := len(h.spy.extended()); n != 30 {
			t.Errorf("%d heartbeats in a minute, want 30", n)
		}
	})
}

// The platform's measure of sleep does not grow while the machine is awake.
//
// Fails (on Linux) if Suspended does not subtract one clock from the other.
func TestPlatformMeasuresNoSleepWhileAwake(t *testing.T) {
	first := dlock.Suspended()
	for range 20_000 {
		if d := dlock.Suspended() - first; d < -2*time.Millisecond || d > 2*time.Millisecond {
			t.Fatalf("slept for %v while this test ran", d)
		}
	}
}

// If a caller uses only Valid of a lease, the session does not check for sleep twice a second.
//
// Fails when add starts the sleep timer, or when remove does not stop it.
func TestSleepIsLookedForOnlyIfSomebodyWaits(t *testing.T) {
	var looks atomic.Int64
	dlock.CountLooks(t, &looks)
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{TTL: 15 * time.Second, StoreTimeout: time.Second})
		quiet, err := h.Session.Semaphore("quiet", 1).TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		before := looks.Load()
		advance(time.Minute)
		if n := looks.Load() - before; n > 12*3+2 || !quiet.Valid() { // three reads per heartbeat
			t.Errorf("%d looks in a minute in which nobody waited, valid %v", n, quiet.Valid())
		}
		waited := h.take(t, "waited for", 1)
		waited.Done()
		before = looks.Load()
		advance(time.Minute)
		if n := looks.Load() - before; n < 120 {
			t.Errorf("%d looks in a minute", n)
		}
		if err := waited.Release(t.Context()); err != nil {
			t.Error(err)
		}
		before = looks.Load()
		advance(time.Minute)
		if n := looks.Load() - before; n > 12*3+2 {
			t.Errorf("%d looks in a minute after nobody waited any more", n)
		}
	})
}

// If the machine sleeps during a heartbeat, the session renews the leases again immediately,
// because their windows began before the sleep.
//
// Fails when renew ignores renewNowAt.
func TestI2_MachineNappedDuringAHeartbeat(t *testing.T) {
	sleep := dlock.FakeSleep(t, true)
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{TTL: 15 * time.Second, StoreTimeout: time.Second})
		lease := h.take(t, "job", 1)
		lease.Done() // a caller waits for the lease to end
		h.faulty.Inject(dlocktest.Slow(900*time.Millisecond), dlocktest.OpExtend)
		advance(5100 * time.Millisecond)
		sleep(5 * time.Second)
		advance(time.Second)
		if n := len(h.spy.extended()); n != 2 {
			t.Errorf("%d heartbeats, want the one that was under way and one after it", n)
		}
		wantHeld(t, lease)
	})
}
