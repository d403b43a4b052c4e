package dlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// After StopRenewing, a lease is valid until its window closes, and its slot is free within a TTL
// of the last renewal. Other leases are still renewed.
//
// Fails when StopRenewing does not remove the lease from renewQueue.
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

// If StopRenewing is called during a renewal of the lease, the lease is not renewed again, and its
// end does not count as a silent loss.
//
// Fails when renew puts leases back into renewQueue that StopRenewing has removed, or calls
// unanswered for them.
func TestStopRenewingDuringAHeartbeat(t *testing.T) {
	for name, fault := range map[string]error{"renewed": nil, "fails": errDown} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, memlock.New(), dlock.SessionOptions{})
				var lease *dlock.Lease
				h.spy.onExtend = func(r []driver.Result, err error) ([]driver.Result, error) {
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
