package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
)

// unlisted is a store that cannot list its leases.
type unlisted struct{ dlock.DistributedLock }

// unsupported is a store whose Enumerate returns an error, because it cannot list.
type unsupported struct{ dlock.DistributedLock }

func (unsupported) Enumerate(context.Context, string, int) (driver.LeasePage, error) {
	return driver.LeasePage{}, fmt.Errorf("without a hash tag: %w", errors.ErrUnsupported)
}

func (h *host) session(lock dlock.DistributedLock, hooks dlock.Hooks) *dlock.Session {
	h.t.Helper()
	s, err := dlock.NewSession(lock, dlock.SessionOptions{Holder: h.Holder(), Hooks: hooks})
	if err != nil {
		h.t.Fatal(err)
	}
	return s
}

func closeSession(t *testing.T, s *dlock.Session) {
	t.Helper()
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// Leases of a store that cannot list them are recorded: their holders, renewals, releases and
// losses. The same holds for a store that discovers only when asked that it cannot list. A failed
// attempt to acquire leaves no row.
//
// Fails when an acquire, a renewal or a release is not recorded, when a refusal is recorded, or
// when the token is written.
func TestLeasesOfAStoreThatCannotListAreRecorded(t *testing.T) {
	for name, wrap := range map[string]func(*memlock.Store) (locks, decorated dlock.DistributedLock){
		"no Enumerator": func(s *memlock.Store) (_, _ dlock.DistributedLock) { return unlisted{s}, unlisted{s} },
		"unsupported":   func(s *memlock.Store) (_, _ dlock.DistributedLock) { return unsupported{s}, unsupported{s} },
		"not in Locks":  func(s *memlock.Store) (_, _ dlock.DistributedLock) { return nil, s },
		"another lock":  func(s *memlock.Store) (_, _ dlock.DistributedLock) { return memlock.New(), s },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				locks, lock := wrap(f.locks)
				a, b := f.start(cluster.Config{Locks: locks}), f.start(cluster.Config{Locks: locks})
				winner, loser := a.session(a.Decorate(lock), dlock.Hooks{}), b.session(b.Decorate(lock), dlock.Hooks{})
				lease, err := winner.Semaphore("outbox:mail", 1).TryAcquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				_, err = loser.Semaphore("outbox:mail", 1).TryAcquire(t.Context())
				if !errors.Is(err, dlock.ErrNotAcquired) {
					t.Fatal(err)
				}
				time.Sleep(2*time.Second + time.Millisecond)
				held := b.snapshot().HeldLeases(cluster.KindOutbox)
				if len(held) != 1 || held[0].Holder != a.Holder() || held[0].Fence != lease.Fence() ||
					!held[0].Recorded || held[0].HostState != cluster.HostAlive || held[0].Own || held[0].Mutex {
					t.Fatalf("%+v", held)
				}
				acquired := held[0].AcquiredAt
				time.Sleep(10 * time.Minute)
				held = b.snapshot().HeldLeases(cluster.KindOutbox)
				if len(held) != 1 || time.Since(held[0].RenewedAt) > ttl ||
					held[0].AcquiredAt.Sub(acquired).Abs() > time.Millisecond {
					t.Fatalf("it was not renewed: %+v", held)
				}
				if err := lease.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
				s := b.snapshot()
				if len(s.Leases) != 1 || s.Leases[0].State != cluster.LeaseReleased ||
					s.Leases[0].Holder != a.Holder() ||
					time.Since(s.Leases[0].ReleasedAt) > 3*time.Second {
					t.Errorf("%+v", s.Leases)
				}
				if len(a.events(cluster.EventAcquired)) != 1 || len(a.events(cluster.EventReleased)) != 1 {
					t.Errorf("%+v", a.snapshot().Events)
				}
				lease, err = winner.Semaphore("outbox:mail", 1).TryAcquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				by := driver.Cause{By: "ann"}
				if err := f.locks.Revoke(t.Context(), "outbox:mail", 0, lease.Fence(), by); err != nil {
					t.Fatal(err)
				}
				time.Sleep(20 * time.Second)
				if revoked := b.events(cluster.EventRevoked); len(revoked) != 1 || revoked[0].Text != "by ann" ||
					revoked[0].Holder != a.Holder() || len(b.events(cluster.EventLost)) != 0 {
					t.Errorf("%+v", b.snapshot().Events)
				}
				if held := b.snapshot().HeldLeases(cluster.KindOutbox); len(held) != 0 {
					t.Errorf("it was revoked: %+v", held)
				}
				for _, b := range a.link.batches() {
					for _, l := range b.Leases {
						if len(l.Grant) != 32 { // the token of a session has another length
							t.Errorf("is this a token? %q", l.Grant)
						}
					}
				}
				closeSession(t, winner)
				closeSession(t, loser)
				f.end()
			})
		})
	}
}

// Leases that the store lists are not written a second time. Their events are written, including
// that a lease was found expired or was lost.
//
// Fails when rows are duplicated.
func TestListedLeasesAreNotRecorded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(cluster.Config{Locks: f.locks})
		link := dlocktest.NewFaulty(f.locks)
		one := h.session(h.Decorate(unwrapping{link, f.locks}), dlock.Hooks{})
		two := h.session(h.Decorate(f.locks), dlock.Hooks{})
		lease, err := one.Mutex("outbox:mine").TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		link.Inject(dlocktest.Error(errDown))
		time.Sleep(time.Minute)
		if lease.Valid() {
			t.Error("it is valid")
		}
		second, err := two.Mutex("outbox:mine").TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		link.Heal()
		_ = lease.Release(t.Context()) // the lease is lost
		time.Sleep(time.Minute)
		s := h.snapshot()
		if len(s.Leases) != 1 || s.Leases[0].Recorded || !s.Leases[0].Mutex {
			t.Errorf("%+v", s.Leases)
		}
		if len(h.events(cluster.EventAcquired)) != 2 || len(h.events(cluster.EventExpired)) != 1 {
			t.Errorf("%+v", s.Events)
		}
		for _, b := range h.link.batches() {
			if len(b.Leases) > 0 {
				t.Errorf("it was written: %+v", b.Leases)
			}
		}
		if err := second.Release(t.Context()); err != nil {
			t.Error(err)
		}
		closeSession(t, one)
		closeSession(t, two)
		f.end()
	})
}

// An unwrapping link returns the store behind it from Unwrap.
type unwrapping struct {
	*dlocktest.Faulty
	store dlock.DistributedLock
}

func (u unwrapping) Unwrap() dlock.DistributedLock { return u.store }

// A registry that hangs, panics, is full or missing, and a Kind function that blocks, do not affect
// a lock: no additional call, no delay, no lost lease.
//
// Fails when Decorate waits for the writer or calls the user's function.
func TestRegistryCostsALockNothing(t *testing.T) {
	const leaseCount = 1_500 // three batches
	for name, c := range map[string]struct {
		fault func(*link)
		kind  func(string) string
	}{
		"well":               {fault: func(*link) {}},
		"hangs":              {fault: func(l *link) { l.hangs = time.Hour }},
		"slow":               {fault: func(l *link) { l.hangs = 5 * time.Second }},
		"panics":             {fault: func(l *link) { l.panics = true }},
		"down":               {fault: func(l *link) { l.err = errDown }},
		"classifier panics":  {fault: func(*link) {}, kind: func(string) string { panic("oh") }},
		"classifier blocks":  {fault: func(*link) {}, kind: func(string) string { time.Sleep(time.Hour); return "x" }},
		"classifier exits":   {fault: func(*link) {}, kind: func(string) string { runtime.Goexit(); return "" }},
		"classifier babbles": {fault: func(*link) {}, kind: func(string) string { return strings.Repeat("\x00𝄞", 99) }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				h := f.start(cluster.Config{Kind: c.kind})
				h.link.set(c.fault)
				counted := dlocktest.NewFaulty(f.locks)
				lock := h.Decorate(counted)
				session := h.session(lock, dlock.Hooks{Lost: func(dlock.LeaseEnded) { t.Error("lost") }})
				began := time.Now()
				var leases []*dlock.Lease
				for i := range leaseCount {
					lease, err := session.Mutex(fmt.Sprint("order:", i)).TryAcquire(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					leases = append(leases, lease)
				}
				if took := time.Since(began); took != 0 || counted.Calls(dlocktest.OpAcquire) != leaseCount {
					t.Errorf("it took %v and %d calls", took, counted.Calls(dlocktest.OpAcquire))
				}
				time.Sleep(time.Minute)
				if c.kind != nil && h.state(h) != cluster.HostAlive {
					t.Errorf("its registry stands still: it is %q", h.state(h))
				}
				for _, l := range leases {
					if !l.Valid() {
						t.Fatal("not valid")
					}
					if err := l.Release(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				closeSession(t, session)
				h.link.heal()
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				if s := h.snapshot(); s.Err != nil {
					t.Error(s.Err)
				}
				f.end()
			})
		})
	}
}

// While the registry is down, the records that wait for it are bounded: a number of ended leases,
// and the newest events and runs. Dropped records are counted, and the others are written later.
// All held leases are written, regardless of their number.
//
// Fails when a bound is removed, a drop is not counted, or a held lease is dropped.
func TestWhatWaitsIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const held, ended = 10_500, 10_900
		f := newFleet(t)
		reg := prometheus.NewRegistry()
		h := f.start(cluster.Config{Registerer: reg})
		h.link.set(func(l *link) { l.err = errDown })
		for i := range ended {
			h.Record(cluster.LeaseRecord{Name: fmt.Sprint("ended:", i), Fence: 1, ExpiresIn: time.Hour, Released: true})
		}
		for i := range held {
			h.Record(cluster.LeaseRecord{Name: fmt.Sprint("held:", i), Fence: 1, ExpiresIn: time.Hour})
		}
		for i := range 5_200 {
			h.RecordRun(cluster.Run{Timer: fmt.Sprint("t", i), Outcome: "ok"})
		}
		session := h.session(h.Decorate(f.locks), dlock.Hooks{})
		for range 600 {
			lease, err := session.Mutex("outbox:mine").TryAcquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		closeSession(t, session)
		dropped := func(what string) float64 { return value(t, reg, "tickslot_cluster_dropped_total", "type", what) }
		// The first event reports that the host has joined.
		if runs, events := dropped("runs"), dropped("events"); runs != 200 || events != 200 {
			t.Errorf("dropped: %v runs, %v events", runs, events)
		}
		h.link.heal()
		time.Sleep(10 * time.Minute)
		s := h.snapshot()
		written := map[string]map[string]bool{"ended": {}, "held": {}, "outbox": {}}
		for _, b := range h.link.batches() {
			if len(b.Leases) > cluster.MaxBatch || len(b.Events) > cluster.MaxBatch || len(b.Runs) > cluster.MaxBatch {
				t.Errorf("a batch of %d leases, %d events, %d runs", len(b.Leases), len(b.Events), len(b.Runs))
			}
			for _, l := range b.Leases {
				kind, _, _ := strings.Cut(l.Name, ":")
				written[kind][l.Name] = true
			}
		}
		if len(s.Leases) != held || len(written["held"]) != held || len(s.Runs) != 200 || len(s.Events) != 200 {
			t.Errorf("%d leases, %d of them written, %d runs, %d events", len(s.Leases), len(written["held"]),
				len(s.Runs), len(s.Events))
		}
		if n := len(written["ended"]); n < 9_000 || n > 10_000 || float64(n)+dropped("leases") != ended {
			t.Errorf("of %d leases that have ended %d were written, and %v dropped", ended, n, dropped("leases"))
		}
		f.end()
	})
}

// A dropped lease counts only if it had to be written, so not if the store of locks lists it.
//
// Fails when leases of a store that turns out to be unable to list are dropped without being
// counted.
func TestDroppedLeasesAreCounted(t *testing.T) {
	for name, lists := range map[string]bool{"lists": true, "unsupported": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				var locks dlock.DistributedLock = f.locks
				if !lists {
					locks = unsupported{f.locks}
				}
				reg := prometheus.NewRegistry()
				h := f.start(cluster.Config{Locks: locks, Registerer: reg})
				session := h.session(h.Decorate(locks), dlock.Hooks{})
				hold := func(name string) {
					lease, err := session.Mutex(name).TryAcquire(t.Context())
					if err == nil {
						err = lease.Release(t.Context())
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				hold("first")
				time.Sleep(time.Minute) // the store is asked whether it can list
				h.link.set(func(l *link) { l.err = errDown })
				for i := range 10_500 {
					hold(fmt.Sprint("order:", i))
				}
				closeSession(t, session)
				n := value(t, reg, "tickslot_cluster_dropped_total", "type", "leases")
				if (n == 0) != lists || n > 1_500 {
					t.Errorf("%v leases are dropped", n)
				}
				f.end()
			})
		})
	}
}

// value returns the value of a series, or -1 if it does not exist.
func value(t *testing.T, reg prometheus.Gatherer, name, label, labelValue string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if label == "" || m.GetLabel()[0].GetName() == label && m.GetLabel()[0].GetValue() == labelValue {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return -1
}

// A decorated store keeps all promises of the inner store, and CapabilitiesOf finds its optional
// interfaces.
//
// Fails when an answer is changed, or Unwrap is missing.
func TestDecorateIsTransparent(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	r, err := cluster.New(cluster.Config{Store: cluster.NewMemoryStore()})
	if err != nil {
		t.Fatal(err)
	}
	dlocktest.Run(t, dlocktest.Harness{
		Features: dlocktest.Features{Fence: true, AtomicTick: true, Holders: true, Info: true, LastSuccess: true,
			PreviousExpired: true, Control: true, Shared: true, Rate: true, Delay: true, Listing: true,
			Enumeration: true},
		Virtual: true,
		New: func(testing.TB) dlocktest.Namespace {
			store := memlock.New()
			return dlocktest.Namespace{Open: func() dlock.DistributedLock { return r.Decorate(r.Decorate(store)) }}
		},
	})
	if r.Decorate(nil) != nil {
		t.Error("no store became one")
	}
	if name := fmt.Sprint(r.Decorate(memlock.New())); name != "memory" {
		t.Error(name)
	}
}
