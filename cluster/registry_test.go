package cluster_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/dlock"
)

// Which of my N nodes is it running on right now? Every host gives the same answer, even after the
// holder was killed: the store of locks is asked, and its leases expire.
//
// Fails when leases are not listed, when the holder is not found among the hosts, or when own
// leases are not marked.
func TestWho(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var sessions []*dlock.Session
		for range 3 {
			h := f.start(cluster.Config{Locks: f.locks})
			s, err := dlock.NewSession(h.Decorate(f.locks), dlock.SessionOptions{Holder: h.Holder()})
			if err != nil {
				t.Fatal(err)
			}
			sessions = append(sessions, s)
		}
		lease, err := sessions[1].Mutex("leader:relay").TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		for i, h := range f.hosts {
			held := h.snapshot().HeldLeases(cluster.KindLeader)
			if len(held) != 1 || held[0].Holder != f.hosts[1].Holder() || held[0].HostState != cluster.HostAlive ||
				held[0].Own != (i == 1) || held[0].Fence != lease.Fence() || held[0].Recorded {
				t.Errorf("host %d sees %+v", i, held)
			}
		}
		lease.StopRenewing() // as if the process were killed
		f.hosts[1].kill()
		time.Sleep(dlock.DefaultTTL)
		if _, err := sessions[2].Mutex("leader:relay").TryAcquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		for _, h := range []*host{f.hosts[0], f.hosts[2]} {
			held := h.snapshot().HeldLeases(cluster.KindLeader)
			if len(held) != 1 || held[0].Holder != f.hosts[2].Holder() {
				t.Errorf("%+v", held)
			}
		}
		for _, s := range sessions {
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		f.end()
	})
}

// A silent process is suspect after one TTL and gone after two. A process that has stopped cleanly
// is gone immediately. Each change is reported once, no matter which host notices.
//
// Fails when a state uses another multiple of the TTL, when Run does not write that it has left,
// and when every host reports the same silence.
func TestAliveSuspectGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		a, b, c := f.start(cluster.Config{}), f.start(cluster.Config{}), f.start(cluster.Config{})
		d := f.start(cluster.Config{})
		time.Sleep(time.Minute)
		for _, h := range []*host{a, b, c, d} {
			if s := a.state(h); s != cluster.HostAlive {
				t.Errorf("%v is %q", h.Holder(), s)
			}
		}
		b.kill()
		c.stop()
		time.Sleep(2 * time.Second)
		if s := a.state(c); s != cluster.HostGone {
			t.Errorf("a host that has left is %q", s)
		}
		time.Sleep(ttl)
		if s := a.state(b); s != cluster.HostSuspect {
			t.Errorf("a host that was silent for a TTL is %q", s)
		}
		time.Sleep(ttl)
		if s := a.state(b); s != cluster.HostGone {
			t.Errorf("a host that was silent for two TTLs is %q", s)
		}
		d.snapshot()
		time.Sleep(ttl / 2)
		gone, left := a.events(cluster.EventHostGone), a.events(cluster.EventHostLeft)
		if len(gone) != 1 || gone[0].Holder != b.Holder() || len(left) != 1 || left[0].Holder != c.Holder() {
			t.Errorf("gone: %+v, left: %+v", gone, left)
		}
		if joined := a.events(cluster.EventHostJoined); len(joined) != 4 {
			t.Errorf("joined: %+v", joined)
		}
		time.Sleep(20 * time.Minute)
		if n := len(a.snapshot().Hosts); n != 2 {
			t.Errorf("%d hosts are left after the sweep", n)
		}
		f.end()
	})
}

// A failing registry is reported once, and its recovery once. Records from the time of the failure
// are written afterwards, each once.
//
// Fails when each failure is logged, when the records of a failed call are lost, or when a write
// whose reply was lost is repeated with other IDs.
func TestRegistryThatFails(t *testing.T) {
	for name, fault := range map[string]func(*link){
		"down":               func(l *link) { l.err = errDown },
		"setup":              func(l *link) { l.err = errors.Join(dlock.ErrSetup, errDown) },
		"hangs":              func(l *link) { l.hangs = time.Hour },
		"slow":               func(l *link) { l.hangs = 5 * time.Second },
		"panics":             func(l *link) { l.panics = true },
		"reply lost":         func(l *link) { l.lost = true },
		"from the beginning": func(l *link) { l.err = errDown },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				h := f.make(cluster.Config{})
				if strings.HasPrefix(name, "from") {
					h.link.set(fault)
				}
				h.begin()
				time.Sleep(time.Minute)
				h.link.set(fault)
				h.RecordRun(cluster.Run{Timer: "report", Outcome: "ok"})
				h.Record(cluster.LeaseRecord{Name: "mine", ExpiresIn: time.Hour, Fence: 1})
				time.Sleep(5 * time.Minute)
				if n := strings.Count(h.log.String(), "level=WARN"); n != 1 {
					t.Errorf("%d warnings:\n%s", n, h.log.String())
				}
				if s, err := h.Snapshot(t.Context()); err == nil || s == nil || s.Err == nil ||
					s.Self.Holder != h.Holder() {
					t.Errorf("%+v, %v", s, err)
				} else if !strings.HasPrefix(name, "from") && (s.ReadAge < time.Minute || len(s.Hosts) != 1) {
					t.Errorf("the last snapshot is not shown: %+v", s)
				}
				h.link.heal()
				time.Sleep(time.Minute)
				if n := strings.Count(h.log.String(), "level=INFO"); n != 1 {
					t.Errorf("it was said %d times that it works again:\n%s", n, h.log.String())
				}
				s := h.snapshot()
				if len(s.Runs) != 1 || len(s.Leases) != 1 || len(s.Events) != 1 || s.Err != nil {
					t.Errorf("%d runs, %d leases, events %+v", len(s.Runs), len(s.Leases), s.Events)
				}
				f.end()
			})
		})
	}
}

// A healthy host makes one call per heartbeat interval, averaged over a long time and for all its
// work.
//
// Fails when a read or a sweep is made in addition to the heartbeat, when a write wakes the writer
// again, or when a lease is written with each heartbeat.
func TestOneCallPerBeat(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		for range 3 {
			f.start(cluster.Config{Locks: f.locks})
		}
		f.hosts[0].Record(cluster.LeaseRecord{Name: "mine", Fence: 1, ExpiresIn: 24 * time.Hour})
		time.Sleep(5 * time.Second)
		if n := f.hosts[0].link.count()["write"]; n != 2 {
			t.Errorf("%d writes: that the host has joined, and what is new a second later", n)
		}
		if n := f.hosts[1].link.count()["write"]; n != 1 {
			t.Errorf("%d writes: that the host has joined", n)
		}
		time.Sleep(time.Minute)
		const hours = 10
		for _, h := range f.hosts {
			h.link.count()
		}
		time.Sleep(hours * time.Hour)
		most := int(hours*time.Hour/(ttl/3*9/10)) + 1
		for _, h := range f.hosts {
			n, all := h.link.count(), 0
			for _, c := range n {
				all += c
			}
			if all > most || n["write"] < most/2 || n["read"] == 0 || n["sweep"] == 0 {
				t.Errorf("%d calls, at most %d: %v", all, most, n)
			}
			if s := f.hosts[0].state(h); s != cluster.HostAlive {
				t.Errorf("it is %q", s)
			}
		}
		writes := 0
		for _, b := range f.hosts[0].link.batches() {
			writes += len(b.Leases)
		}
		if writes != 1 {
			t.Errorf("a lease of which nothing is new was written %d times", writes)
		}
		f.end()
	})
}

// The detail of a host is sent when it has changed, and again when the registry has lost it.
//
// Fails when it is sent with each heartbeat, or is not sent after HostUnknown.
func TestDetailIsSentWhenItChanged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(cluster.Config{})
		sent := func() (n int) {
			for _, b := range h.link.batches() {
				if b.Host != nil && b.Host.Detail != nil {
					n++
				}
			}
			return n
		}
		time.Sleep(10 * time.Minute)
		if n := sent(); n != 1 {
			t.Errorf("sent %d times", n)
		}
		remove := h.Add(runner(func(show func(kind, name, state string, changedAt time.Time, err error)) {
			show("relay", "mail", "running", time.Time{}, errors.New("no"))
		}))
		time.Sleep(10 * time.Minute)
		if n := sent(); n != 2 {
			t.Errorf("sent %d times after a change", n)
		}
		found := slices.ContainsFunc(h.snapshot().Hosts[0].Runners, func(r cluster.RunnerDetail) bool {
			return r.Kind == "relay" && r.Name == "mail" && r.State == "running" && r.Err == "no"
		})
		if !found {
			t.Errorf("%+v", h.snapshot().Hosts[0])
		}
		h.link.set(func(l *link) { l.Store = cluster.NewMemoryStore() }) // the registry was emptied
		time.Sleep(time.Minute)
		if hosts := h.snapshot().Hosts; len(hosts) != 1 || len(hosts[0].Runners) != 2 || sent() != 3 {
			t.Errorf("after the registry was emptied: %+v, sent %d times", hosts, sent())
		}
		remove()
		time.Sleep(time.Minute)
		if hosts := h.snapshot().Hosts; len(hosts[0].Runners) != 1 {
			t.Errorf("after it was removed: %+v", hosts)
		}
		f.end()
	})
}

// runner is a function that implements Runner.
type runner func(show func(kind, name, state string, changedAt time.Time, err error))

func (r runner) Runners(show func(kind, name, state string, changedAt time.Time, err error)) { r(show) }
