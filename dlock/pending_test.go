package dlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// Pending releases are sent in batches, are dropped after one TTL, when their grants have expired,
// and are limited in number. So a store that returns after a long outage gets no flood of old
// releases.
//
// Fails when beat keeps expired ones (all 120 are released), when releasePending sends all at once,
// or when addPending has no limit.
func TestPendingReleasesAreBounded(t *testing.T) {
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
			h.faulty.Inject(down, dlocktest.OpAcquire)
			for range dlock.MaxPending + 50 {
				h.Mutex("job").TryAcquire(bg)
			}
			advance(ttl)
			if n, largest := given(h, 0); n != dlock.MaxPending || largest != dlock.BeatBatch {
				t.Errorf("%d given back, at most %d at once, want %d and %d", n, largest, dlock.MaxPending,
					dlock.BeatBatch)
			}
		})
	})
}

// If a grant must be released because the store did not answer, leases are also renewed early. This
// soon shows whether the store answers.
//
// Fails when beat only releases.
func TestGivingBackSharedRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, memlock.New(), dlock.SessionOptions{})
		h.take(t, "job", 1)
		h.faulty.InjectN(2, dlocktest.LostReply, dlocktest.OpAcquire)
		h.Mutex("another").TryAcquire(bg)
		advance(ttl/10 + ttl/20)
		if n, m := len(h.spy.extended()), len(h.spy.released()); n != 1 || m != 1 {
			t.Errorf("%d heartbeats and %d releases, want 1 and 1", n, m)
		}
	})
}
