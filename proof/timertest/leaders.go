package timertest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/leader"
)

// A role passes from host to host, by a drain and by the end of a lease. No two terms of a slot are
// valid at once, fences grow, and the next leader starts in time.
//
// Fails when a drain does not release the role, when hosts try too seldom, and when a store grants
// a slot twice.
func leaders(s *suite, t *testing.T) {
	testkit.SkipShort(t)
	f := s.fleet(t)
	e := &election{f: f, interval: 100 * time.Millisecond}
	var hosts []*candidate
	for range 3 {
		hosts = append(hosts, e.join(t, 1))
	}
	terms := func(n int) func() bool { return func() bool { return e.begun() >= n } }
	f.until("somebody leads", terms(1))

	drained := e.latest().by
	drained.cancel()
	if err := <-drained.ended; err != nil {
		t.Error(err)
	}
	since := time.Now()
	f.until("another host leads after the drain", terms(2))
	e.inTime(t, since, 0)

	term := e.latest()
	since = time.Now()
	term.by.link.Inject(dlocktest.Hang)
	f.until("another host leads when the lease has ended", terms(3))
	e.inTime(t, since, s.TTL)
	if err := context.Cause(term.ctx); term.Valid() || !errors.Is(err, dlock.ErrLost) {
		t.Errorf("the old leader: valid %v, context %v", term.Valid(), err)
	}
	term.by.link.Heal()
	for _, h := range hosts {
		h.cancel()
	}
	for _, h := range hosts {
		if h == drained {
			continue
		}
		if err := <-h.ended; err != nil {
			t.Error(err)
		}
	}
	e.check(t)
}

// Up to Max hosts lead, each with its own slot.
//
// Fails when two have the same slot, or one slot stays free.
func shards(s *suite, t *testing.T) {
	f := s.fleet(t)
	e := &election{f: f, interval: 100 * time.Millisecond}
	var hosts []*candidate
	for range 3 {
		hosts = append(hosts, e.join(t, 2))
	}
	lead := func() (slots []int) {
		for _, h := range hosts {
			if st := h.Status(); st.State == leader.StateLeading {
				slots = append(slots, st.Slot)
			}
		}
		slices.Sort(slots)
		return slots
	}
	f.until("two lead, in slots of their own", func() bool { return slices.Equal(lead(), []int{0, 1}) })
	for _, h := range hosts {
		h.cancel()
	}
	for _, h := range hosts {
		if err := <-h.ended; err != nil {
			t.Error(err)
		}
	}
	e.check(t)
}

// An election is for one role.
type election struct {
	f        *realFleet
	interval time.Duration

	mu     sync.Mutex
	terms  []*watchedTerm
	faults []string
}

// A candidate is a host.
type candidate struct {
	*leader.Elector
	link   *link
	cancel context.CancelFunc
	ended  chan error
}

type watchedTerm struct {
	*leader.Term
	by  *candidate
	ctx context.Context
	at  time.Time
}

// join adds a host. Its function runs until its context ends.
func (e *election) join(t *testing.T, most int) *candidate {
	t.Helper()
	c := &candidate{link: e.f.connect(), ended: make(chan error, 1)}
	session, err := dlock.NewSession(c.link, dlock.SessionOptions{TTL: e.f.suite.TTL,
		StoreTimeout: e.f.storeTimeout()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close(context.Background()) }) // a call may hang until the end
	c.Elector, err = leader.New(session, leader.Role{Name: "a", Max: most, RetryInterval: e.interval,
		Logger: slog.New(slog.DiscardHandler),
		Run:    func(ctx context.Context, term *leader.Term) error { return e.lead(ctx, c, term) }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	t.Cleanup(func() { c.link.Heal(); cancel() })
	go func() { c.ended <- c.Run(ctx) }()
	return c
}

// lead is the role's function.
func (e *election) lead(ctx context.Context, by *candidate, term *leader.Term) error {
	e.mu.Lock()
	for _, other := range e.terms {
		if other.Slot() != term.Slot() {
			continue
		}
		if other.Valid() && other.ctx.Err() == nil {
			e.faults = append(e.faults, fmt.Sprintf("slot %d: fences %d and %d are valid at once", term.Slot(),
				other.Fence(), term.Fence()))
		}
		if other.Fence() >= term.Fence() {
			e.faults = append(e.faults, fmt.Sprintf("slot %d: fence %d after %d", term.Slot(), term.Fence(),
				other.Fence()))
		}
	}
	e.terms = append(e.terms, &watchedTerm{term, by, ctx, time.Now()})
	e.mu.Unlock()
	<-ctx.Done()
	return nil
}

func (e *election) check(t *testing.T) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, fault := range e.faults {
		t.Error(fault)
	}
	if len(e.terms) == 0 {
		t.Error("nobody has led")
	}
}

// begun returns how many terms have started.
func (e *election) begun() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.terms)
}

func (e *election) latest() *watchedTerm {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.terms[len(e.terms)-1]
}

// inTime checks that the latest term started within the rest of its predecessor's lease, plus a
// retry and its call, which may take a StoreTimeout.
func (e *election) inTime(t *testing.T, since time.Time, lease time.Duration) {
	t.Helper()
	most := lease + e.interval + e.f.storeTimeout() + e.f.suite.late.Since(since)
	if took := e.latest().at.Sub(since); took > most {
		t.Errorf("another host leads after %v, want at most %v", took.Round(time.Millisecond), most)
	}
}
