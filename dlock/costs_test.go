package dlock_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
)

// In addition to the store's allocations, a refused attempt allocates its token and its context. A
// granted attempt also allocates the lease and the release.
//
// Fails when the context of a call starts a timer, when a tick is allocated separately, or when a
// lease gets its context before it is needed.
func TestAllocationsOfAnAttempt(t *testing.T) {
	session, store := newInstant(t)
	job, tick := session.Semaphore("process-the-orders-of-the-whole-day", 3), driver.Tick{At: time.Now(), Max: 1}
	cycle := func() {
		if lease, err := job.TryAcquireTick(bg, tick); err == nil {
			lease.Release(bg)
		}
	}
	extra := 0.0 // under the race detector, the token's bytes escape
	if testkit.RaceDetector {
		extra = 1
	}
	if n := testing.AllocsPerRun(1000, cycle); n != 6+extra {
		t.Errorf("%v for an acquire and its release, want %v", n, 6+extra)
	}
	store.refuses = &dlock.NotAcquiredError{Name: "job", Reason: dlock.ReasonFull}
	if n := testing.AllocsPerRun(1000, cycle); n != 2+extra {
		t.Errorf("%v for an acquire that is refused, want %v", n, 2+extra)
	}
}

// A heartbeat's cost depends on the number of calls, not of leases. It reads the clocks only before
// and after the call, and its allocations do not depend on the number of leases. One timer closes
// all windows.
//
// Fails when renewed reads the clock itself, or when every lease has its own timer that checks its
// window.
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
		closer := int64(60*beat/(trusted-beat)) + 1 // fires when the oldest window would close without a renewal
		if n := looks.Load() - before; n > 2*60+closer {
			t.Errorf("%d readings of the clocks in 60 heartbeats, want 2 each and at most %d of the expiry timer", n,
				closer)
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
