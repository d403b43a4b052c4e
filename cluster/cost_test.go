package cluster_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
)

// A host makes at most one call per heartbeat interval, to the registry and the store of locks
// together, for any number of leases up to MaxBatch. If there is something to write in every
// interval, reads of the fleet and sweeps are additional, which makes four calls in three
// intervals. While recorded leases of other kinds than timers come and go continuously, the host
// makes one call per second.
//
// Fails when leases are written by more than one call or one by one, when the leases of the store
// of locks are listed in addition to the heartbeat, and when writes leave no turn for reads and
// sweeps.
func TestCallsOfAHostWithManyLeases(t *testing.T) {
	const interval, busy = ttl / 3, ttl / 4
	lasts := time.Duration(testkit.Rounds(t, 7, 20)) * time.Minute
	for _, c := range []struct {
		leases int
		lists  bool
		churn  string        // name of a lease that comes and goes
		most   time.Duration // maximum time between two calls
	}{
		{1, true, "", interval}, {cluster.MaxBatch, true, "", interval}, {1, true, "timer:often", interval},
		{1, true, "job:often", interval}, {1, false, "", busy}, {cluster.MaxBatch, false, "", busy},
		{1, false, "timer:often", busy}, {1, false, "job:often", time.Second},
	} {
		t.Run(fmt.Sprintf("%d leases, listed %v, churn %q", c.leases, c.lists, c.churn), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				pages := &paged{Store: f.locks}
				var locks dlock.DistributedLock = pages
				if !c.lists {
					locks = struct{ dlock.DistributedLock }{f.locks}
				}
				h := f.start(cluster.Config{Locks: locks})
				session, err := dlock.NewSession(h.Decorate(locks), dlock.SessionOptions{Holder: h.Holder()})
				if err != nil {
					t.Fatal(err)
				}
				for i := range c.leases {
					if _, err := session.Mutex(fmt.Sprint("timer:", i)).TryAcquire(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Minute)
				h.link.count()
				pages.calls.Store(0)
				if end := time.Now().Add(lasts); c.churn != "" {
					for time.Now().Before(end) {
						lease, err := session.Mutex(c.churn).TryAcquire(t.Context())
						if err != nil {
							t.Fatal(err)
						}
						time.Sleep(250 * time.Millisecond)
						if err := lease.Release(t.Context()); err != nil {
							t.Fatal(err)
						}
						time.Sleep(250 * time.Millisecond)
					}
				} else {
					time.Sleep(time.Until(end))
				}
				n, all := h.link.count(), int(pages.calls.Load())
				for _, calls := range n {
					all += calls
				}
				if n["read"] == 0 || n["sweep"] == 0 {
					t.Errorf("it never reads, or never sweeps: %v", n)
				}
				if most := int(lasts / (c.most * 9 / 10)); all > most {
					t.Errorf("%d calls, at most %d: %v, and %d of pages", all, most, n, pages.calls.Load())
				}
				t.Logf("%.2f calls per interval: %v, and %d of pages", float64(all)/float64(lasts/interval), n,
					pages.calls.Load())
				if err := session.Close(t.Context()); err != nil {
					t.Error(err)
				}
				f.end()
			})
		})
	}
}

// paged counts how often a page of its leases is requested.
type paged struct {
	*memlock.Store
	calls atomic.Int64
}

func (p *paged) Enumerate(ctx context.Context, after string, limit int) (driver.LeasePage, error) {
	p.calls.Add(1)
	return p.Store.Enumerate(ctx, after, limit)
}
