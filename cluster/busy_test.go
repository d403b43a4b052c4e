package cluster_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/dlock"
)

// A host that has something new to write in every interval, such as the runs of a timer that is due
// every second, still reads the fleet and sweeps, and still writes new rows soon.
//
// Fails when reads and sweeps happen only in intervals with nothing new: a fleet of busy hosts
// would then never sweep and never notice that a host is gone.
func TestBusyHostsReadAndSweep(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		busy, other := f.start(cluster.Config{}), f.start(cluster.Config{})
		time.Sleep(time.Second)
		busy.link.count()
		other.kill()
		const minutes = 10
		for range minutes * 60 {
			busy.RecordRun(cluster.Run{Timer: "each second", Outcome: "ok"})
			time.Sleep(time.Second)
		}
		n := busy.link.count()
		if n["read"] < 5 || n["sweep"] < 2 {
			t.Errorf("in %d minutes: %v", minutes, n)
		}
		if hosts, gone := f.hostsAndGone(); len(hosts) != 1 || len(gone) != 1 || gone[other.Holder()] != 1 {
			t.Errorf("%d hosts after the sweep, and events of these that are gone: %v", len(hosts), gone)
		}
		var last time.Time
		for i, b := range busy.link.batches() {
			if i > 0 && b.Host.UpFor > 0 {
				at := time.Time{}.Add(b.Host.UpFor)
				if !last.IsZero() && at.Sub(last) > ttl/2 {
					t.Errorf("nothing was written for %v", at.Sub(last))
				}
				last = at
			}
		}
		f.end()
	})
}

// A host with a short TTL that always has something new to write is never considered suspect.
//
// Fails when the heartbeat after a read or a sweep is delayed by a fixed second, even with a short
// TTL.
func TestBusyHostWithAShortTTLIsAlive(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(cluster.Config{TTL: 200 * time.Millisecond, SnapshotAge: time.Millisecond})
		for range 2_000 {
			h.RecordRun(cluster.Run{Timer: "often", Outcome: "ok"})
			time.Sleep(30 * time.Millisecond)
			if s := h.state(h); s != cluster.HostAlive {
				t.Fatalf("it is %q", s)
			}
		}
		f.end()
	})
}

// Full batches of a sweep follow each other about every second, and heartbeats are written in
// between.
//
// Fails when there is one batch per two heartbeat intervals: a registry that receives rows faster
// than that would never stop growing.
func TestFullSweepsFollowEachOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		store := &endless{Store: f.store}
		f.store = store
		h := f.start(cluster.Config{})
		time.Sleep(10 * time.Minute)
		if n := h.link.count(); n["sweep"] < 200 || n["write"] < 30 || n["read"] < 5 {
			t.Errorf("%v", n)
		}
		if s := h.state(h); s != cluster.HostAlive {
			t.Errorf("it is %q", s)
		}
		f.end()
	})
}

// endless is a store that always has more to sweep.
type endless struct{ cluster.Store }

func (endless) Sweep(_ context.Context, _ cluster.Retention, limit int) (int, error) {
	return limit, nil
}

// A Kind function that fails for every name is logged once.
//
// Fails when it is logged for each name: names that contain data are numerous.
func TestClassifierThatFailsIsLoggedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(cluster.Config{Kind: func(string) string { panic("oh") }})
		for i := range 100 {
			h.Record(cluster.LeaseRecord{Name: fmt.Sprint("order:", i), ExpiresIn: time.Minute})
		}
		time.Sleep(time.Minute)
		if n := strings.Count(h.log.String(), "Config.Kind"); n != 1 {
			t.Errorf("%d lines", n)
		}
		f.end()
	})
}

// A record of a lease that claims to be acquired in an hour does not block the next record.
//
// Fails when invalid durations become instants in the future, which are newer than all later ones.
func TestRecordTakesNoLeaseOfTheFuture(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(cluster.Config{})
		h.Record(cluster.LeaseRecord{Name: "a", Fence: 1, HeldFor: -time.Hour, RenewedAgo: -time.Hour,
			ExpiresIn: time.Hour})
		time.Sleep(5 * time.Second)
		h.Record(cluster.LeaseRecord{Name: "a", Fence: 2, ExpiresIn: time.Hour})
		time.Sleep(5 * time.Second)
		if l := h.snapshot().Leases; len(l) != 1 || l[0].Fence != 2 {
			t.Errorf("%+v", l)
		}
		f.end()
	})
}

// If more leases than fit into a batch are renewed continuously, each one is written in its turn.
//
// Fails when batches pick leases arbitrarily: some are then not written for a long time and seem to
// have ended.
func TestLeasesAreWrittenInTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(cluster.Config{})
		const leases, seconds = 4 * cluster.MaxBatch, 60
		for range seconds {
			for i := range leases {
				h.Record(cluster.LeaseRecord{Name: fmt.Sprint("order:", i), Fence: 1, ExpiresIn: 10 * time.Second})
			}
			time.Sleep(time.Second)
		}
		last, longest := map[string]time.Duration{}, time.Duration(0)
		for _, b := range h.link.batches() {
			for _, l := range b.Leases {
				longest = max(longest, b.Host.UpFor-last[l.Name])
				last[l.Name] = b.Host.UpFor
			}
		}
		if longest > 8*time.Second || len(last) != leases {
			t.Errorf("%d leases, one was not written for %v", len(last), longest)
		}
		f.end()
	})
}

// After one failed sweep, a host of a large fleet tries again soon.
//
// Fails when it waits for its next turn and reports a failing registry for hours.
func TestSweepThatFailedIsTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		store := &sweepFails{Store: f.store}
		f.store = store
		f.others(300, 48*time.Hour)
		store.once.Store(true)
		h := f.start(cluster.Config{})
		for range 16 { // its turn comes within that many hours
			if time.Sleep(time.Hour); !store.once.Load() {
				break
			}
		}
		time.Sleep(time.Hour)
		if s := h.snapshot(); store.once.Load() || len(s.Hosts) != 301 || s.Runners[0].State != "writing" {
			t.Errorf("%d hosts, %+v", len(s.Hosts), s.Runners)
		}
		f.end()
	})
}

// A registry whose sweeps always fail is shown as failing, even if its writes succeed.
//
// Fails when a successful call hides the failure of another kind of call.
func TestSweepThatAlwaysFailsIsSeen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		f.store = &sweepFails{Store: f.store, always: true}
		h := f.start(cluster.Config{})
		time.Sleep(4 * time.Hour)
		if s := h.snapshot(); !strings.Contains(fmt.Sprintf("%+v", s.Runners), errDown.Error()) {
			t.Errorf("%+v", s.Runners)
		}
		f.end()
	})
}

// sweepFails is a store whose next sweep fails if once is set, and otherwise every sweep.
type sweepFails struct {
	cluster.Store
	once   atomic.Bool
	always bool
}

func (s *sweepFails) Sweep(ctx context.Context, r cluster.Retention, limit int) (int, error) {
	if s.once.Swap(false) || s.always {
		return 0, errDown
	}
	return s.Store.Sweep(ctx, r, limit)
}

// After the registry was emptied, unchanged leases return as soon as their hosts do.
//
// Fails when only the host is written again: a lease that is recorded once would then be missing
// until it ends.
func TestLeasesAreBackAfterTheRegistryWasEmptied(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(cluster.Config{})
		for i := range cluster.MaxBatch + 1 {
			h.Record(cluster.LeaseRecord{Name: fmt.Sprint("order:", i), Fence: 1, ExpiresIn: time.Hour})
		}
		time.Sleep(time.Minute)
		h.link.set(func(l *link) { l.Store = cluster.NewMemoryStore() })
		time.Sleep(30 * time.Second)
		if n := len(h.snapshot().Leases); n != cluster.MaxBatch+1 {
			t.Errorf("%d leases", n)
		}
		f.end()
	})
}

// others writes n hosts that send no further heartbeat and stay alive for one TTL.
func (f *fleet) others(n int, ttl time.Duration) {
	f.t.Helper()
	for i := range n {
		if _, err := f.store.Write(f.t.Context(), cluster.Batch{Host: &cluster.Heartbeat{TTL: ttl,
			Holder: dlock.Holder{Host: fmt.Sprint("node-", i), ID: "x"}, Detail: []byte("{}")}}); err != nil {
			f.t.Fatal(err)
		}
	}
}

// A host of a large fleet reads the registry once when it starts and then waits for its turn.
//
// Fails when the first turn is planned as if the host were alone: after a common restart, a
// thousand hosts would each read a thousand rows twice.
func TestStartOfALargeFleet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		f.others(1_000, 48*time.Hour)
		h := f.start(cluster.Config{})
		time.Sleep(10 * time.Minute)
		if n := h.link.count()["read"]; n > 2 { // its turn may come early
			t.Errorf("%d reads", n)
		}
		f.end()
	})
}
