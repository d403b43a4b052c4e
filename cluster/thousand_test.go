package cluster_test

import (
	"context"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/internal/testkit"
)

// late is a store whose clock is behind the clocks of its hosts.
type late struct {
	cluster.Store
	by time.Duration
}

func (s late) Write(ctx context.Context, b cluster.Batch) (cluster.Written, error) {
	w, err := s.Store.Write(ctx, b)
	if !w.At.IsZero() {
		w.At = w.At.Add(-s.by)
	}
	return w, err
}

// A host reports how far its wall clock is ahead of the store's. States do not depend on that: they
// follow the store's clock alone, no matter which host reads.
//
// Fails when the offset has the wrong sign or is never measured, and when a host judges others by
// its own time of day.
func TestClockOffset(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const ahead = 5 * time.Second
		f := newFleet(t)
		right, ticks := f.start(cluster.Config{}), []*host{f.make(cluster.Config{}), f.make(cluster.Config{})}
		fast, dies := ticks[0], ticks[1]
		for _, h := range ticks {
			h.link.Store = late{f.store, ahead}
			h.begin()
		}
		time.Sleep(time.Minute)
		for _, viewer := range f.hosts {
			for _, h := range viewer.snapshot().Hosts {
				want := ahead
				if h.Holder == right.Holder() {
					want = 0
				}
				if h.ClockOffset != want || h.State != cluster.HostAlive {
					t.Errorf("%v is %q and ahead by %v, want %v", h.Holder, h.State, h.ClockOffset, want)
				}
			}
		}
		dies.kill()
		killed := time.Now()
		// The last heartbeat was written within the last two intervals, one of which may have been
		// used for a read.
		for _, step := range []struct {
			after time.Duration
			want  cluster.HostState
		}{
			{ttl/3 - time.Second, cluster.HostAlive}, {ttl + time.Second, cluster.HostSuspect},
			{2*ttl*2/3 - time.Second, cluster.HostSuspect}, {2*ttl + time.Second, cluster.HostGone},
		} {
			time.Sleep(time.Until(killed.Add(step.after)))
			for _, viewer := range []*host{right, fast} {
				if s := viewer.state(dies); s != step.want {
					t.Errorf("%v after its end %v sees it as %q, want %q", step.after, viewer.Holder(), s, step.want)
				}
			}
		}
		f.end()
	})
}

// Many hosts that start at the same time (a thousand in the long proofs) together read about once
// per interval from the beginning. So a host that dies is noticed before its row is swept, and one
// read shows all hosts.
//
// Fails when each host reads between two and four thirds of its turn after its start, when each
// reads as often as in a small fleet, and when a read returns only a page of the hosts.
func TestThousandHosts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := testkit.Rounds(t, 30, 1000)
		f := newFleet(t)
		for range n {
			f.start(cluster.Config{})
		}
		time.Sleep(2 * time.Minute)
		viewer, dies := f.hosts[0], f.hosts[n/2]
		dies.kill()
		for _, h := range f.hosts {
			h.link.count()
		}
		const intervals = 60
		time.Sleep(intervals * ttl / 3)
		reads, most := 0, 0
		for _, h := range f.hosts {
			c := h.link.count()
			reads += c["read"]
			most = max(most, c["write"]+c["read"]+c["sweep"])
		}
		if reads < intervals/6 || reads > 3*intervals {
			t.Errorf("%d reads in %d intervals", reads, intervals)
		}
		if most > intervals*10/9+2 {
			t.Errorf("a host made %d calls in %d intervals", most, intervals)
		}
		rows, err := f.store.Read(t.Context(), cluster.Query{Events: cluster.MaxEvents})
		if err != nil {
			t.Fatal(err)
		}
		gone := 0
		for _, e := range rows.Events {
			if e.Kind == cluster.EventHostGone {
				gone++
			}
		}
		if gone != 1 {
			t.Errorf("%d hosts are told to be gone, want 1", gone)
		}
		viewer.link.count()
		states := map[cluster.HostState]int{}
		for _, h := range viewer.snapshot().Hosts {
			states[h.State]++
		}
		if states[cluster.HostAlive] != n-1 || len(states) > 1 && states[cluster.HostGone] != 1 {
			t.Errorf("%v", states)
		}
		if c := viewer.link.count(); c["read"] != 1 {
			t.Errorf("a snapshot takes %v", c)
		}
		f.end()
	})
}
