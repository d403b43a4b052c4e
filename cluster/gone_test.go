package cluster_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/testkit"
)

// hostsAndGone returns the host rows, and for each host the number of events that report it gone.
func (f *fleet) hostsAndGone() (hosts []cluster.HostRow, gone map[dlock.Holder]int) {
	f.t.Helper()
	rows, err := f.store.Read(f.t.Context(), cluster.Query{Events: cluster.MaxEvents})
	if err != nil {
		f.t.Fatal(err)
	}
	gone = map[dlock.Holder]int{}
	for _, e := range rows.Events {
		if e.Kind == cluster.EventHostGone {
			gone[e.Holder]++
		}
	}
	return rows.Hosts, gone
}

// For every host that dies, exactly one event reports it gone, no matter how soon, and by which
// host, its row is deleted.
//
// Fails when a host deletes the row of another that was not yet gone at the last read of hosts.
func TestEveryHostThatDiesIsReported(t *testing.T) {
	deaths := testkit.Rounds(t, 25, 250)
	for _, c := range []struct {
		hosts int
		lists bool // leases are read too, alternating with the hosts
	}{{1, false}, {1, true}, {3, true}} {
		t.Run(fmt.Sprintf("%d hosts, listed %v", c.hosts, c.lists), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				var o cluster.Config
				if c.lists {
					o.Locks = f.locks
				}
				for range c.hosts {
					f.start(o)
				}
				for range deaths {
					f.start(o)
					time.Sleep(time.Minute)
					f.hosts[len(f.hosts)-1].kill()
					time.Sleep(2 * time.Minute)
				}
				time.Sleep(20 * time.Minute)
				hosts, gone := f.hostsAndGone()
				for _, h := range f.hosts[c.hosts:] {
					if gone[h.Holder()] != 1 {
						t.Errorf("%d events say that %v is gone, want 1", gone[h.Holder()], h.Holder())
					}
				}
				if len(hosts) != c.hosts {
					t.Errorf("%d hosts are left, want %d", len(hosts), c.hosts)
				}
				f.end()
			})
		})
	}
}

// While hosts cannot be read, old leases are deleted, but no host that is gone. When hosts can be
// read again, an event reports it.
//
// Fails when nothing is deleted while reads fail, or when host rows are.
func TestHostsThatCannotBeReadAreKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		store := &readFails{Store: f.store}
		f.store = store
		h, dies := f.start(cluster.Config{}), f.start(cluster.Config{})
		h.Record(cluster.LeaseRecord{Name: "old", Fence: 1, ExpiresIn: time.Minute})
		time.Sleep(time.Minute)
		store.down.Store(true)
		dies.kill()
		time.Sleep(time.Hour)
		rows, err := store.Store.Read(t.Context(), cluster.Query{})
		if err != nil || len(rows.Hosts) != 2 || len(rows.Leases) != 0 {
			t.Errorf("%d hosts and %d leases, %v: want 2 and 0", len(rows.Hosts), len(rows.Leases), err)
		}
		store.down.Store(false)
		time.Sleep(10 * time.Minute)
		if hosts, gone := f.hostsAndGone(); len(hosts) != 1 || len(gone) != 1 || gone[dies.Holder()] != 1 {
			t.Errorf("%d hosts are left, and these are gone: %v", len(hosts), gone)
		}
		f.end()
	})
}

// Old rows are deleted soon after a read of hosts.
//
// Fails when deletes happen at any time: in a large fleet, most hosts have last read the others
// long ago, so they may not delete host rows.
func TestRowsAreDeletedWhenHostsWereRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		f.others(20, 48*time.Hour)
		store := &readTimes{Store: f.store}
		f.store = store
		f.start(cluster.Config{})
		time.Sleep(6 * time.Hour)
		f.end()
		if store.sweeps < 5 || store.longest > ttl*9/10 {
			t.Errorf("%d sweeps, up to %v after hosts were read", store.sweeps, store.longest)
		}
	})
}

// readTimes records the time between each Sweep and the preceding Read. It serves one host.
type readTimes struct {
	cluster.Store
	read    time.Time
	sweeps  int
	longest time.Duration
}

func (s *readTimes) Read(ctx context.Context, q cluster.Query) (cluster.Rows, error) {
	s.read = time.Now()
	return s.Store.Read(ctx, q)
}

func (s *readTimes) Sweep(ctx context.Context, r cluster.Retention, limit int) (int, error) {
	s.sweeps++
	s.longest = max(s.longest, time.Since(s.read))
	return s.Store.Sweep(ctx, r, limit)
}

// readFails is a store whose reads fail while down is set.
type readFails struct {
	cluster.Store
	down atomic.Bool
}

func (s *readFails) Read(ctx context.Context, q cluster.Query) (cluster.Rows, error) {
	if s.down.Load() {
		return cluster.Rows{}, errDown
	}
	return s.Store.Read(ctx, q)
}

// The last remaining host of a thousand reads the registry within 1,000 heartbeats, and after that
// as often as a host that was always alone. A Snapshot in between changes nothing.
//
// Fails when it keeps the plan that it made while it shared the work with a thousand hosts: it
// would then read hosts hours later and delete rows after a day.
func TestLastHostOfALargeFleet(t *testing.T) {
	for _, viewed := range []bool{true, false} {
		t.Run(fmt.Sprintf("viewed %v", viewed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				f.others(999, ttl)
				h := f.start(cluster.Config{})
				if viewed {
					time.Sleep(5 * time.Minute)
					h.snapshot()
				} else {
					time.Sleep(1_000 * ttl / 3)
				}
				time.Sleep(5 * time.Minute)
				if hosts, gone := f.hostsAndGone(); len(hosts) != 1 || len(gone) != 999 {
					t.Errorf("%d hosts are left, want 1; %d are gone, want 999", len(hosts), len(gone))
				}
				h.link.count()
				time.Sleep(10 * time.Minute)
				if n := h.link.count(); n["read"] < 10 || n["sweep"] < 3 {
					t.Errorf("in 10 minutes: %v", n)
				}
				f.end()
			})
		})
	}
}
