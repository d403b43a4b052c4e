package registrycost_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/redisregistry"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/proof/redistest"
)

// On a real Redis, a snapshot of a thousand timers with all slots held takes at most five calls to
// the registry's and the locks' stores together, even with a few names more. One call reads the
// registry, and each other call reads a page of leases.
//
// Fails when a page of leases has only 1,000 names and slots.
func TestSnapshotOfAThousandTimersOnRedis(t *testing.T) {
	for _, slots := range []int{3, 5} {
		t.Run(fmt.Sprintf("%d slots", slots), func(t *testing.T) {
			const timers = 1000
			prefix := unique(t)
			addr := redistest.Shared(t).Addr()
			names := make([]string, timers)
			for i := range names {
				names[i] = fmt.Sprintf("timer:orders-%04d", i)
			}
			others := []string{"tickslot:hosts", "leader:relay", "leader:report"}
			direct := redisLocksAt(t, addr, prefix, append(others, names...)...)
			holdAll(t, direct, names, slots)
			holdAll(t, direct, others, 10)
			wire := redistest.NewCountingProxyFor(t, addr)
			store := redisregistry.New(redisClient(t, wire.Addr()), redisregistry.Options{Prefix: prefix})
			t.Cleanup(func() { store.Close() })
			locks := redisLocksAt(t, wire.Addr(), prefix)
			snapshot := func() {
				t.Helper()
				registry, err := cluster.New(cluster.Config{Store: store, Locks: locks, TTL: 5 * time.Minute,
					StoreTimeout: time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				s, err := registry.Snapshot(t.Context())
				if err != nil || len(s.HeldLeases(cluster.KindTimer)) != timers*slots {
					t.Errorf("%d leases are held, want %d; %v", len(s.HeldLeases(cluster.KindTimer)), timers*slots, err)
				}
			}
			snapshot() // loads the scripts
			before := wire.RoundTrips()
			snapshot()
			if n := wire.RoundTrips() - before; n > 5 {
				t.Errorf("%d round trips, want at most 5", n)
			}
		})
	}
}

// holdAll takes all slots of all names.
func holdAll(t *testing.T, locks dlock.DistributedLock, names []string, slots int) {
	t.Helper()
	var all errgroup.Group
	all.SetLimit(8)
	for _, name := range names {
		all.Go(func() error {
			for range slots {
				req := driver.Request{Name: name, Slots: slots, Token: rand.Text(), TTL: ttl}
				if _, err := locks.TryAcquire(context.Background(), req); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
}
