package leader_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/leader"
)

var errDown = errors.New("the store is down")

// bubble runs a test in virtual time. If a goroutine is left, the test fails.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

// A fleet has hosts that compete for one role in one store, in virtual time.
type fleet struct {
	t     *testing.T
	store *memlock.Store
	watch watch
	hosts []*host
}

func newFleet(t *testing.T) *fleet { return &fleet{t: t, store: memlock.New()} }

// A host is a process of the fleet.
type host struct {
	*leader.Elector
	session *dlock.Session
	link    *dlocktest.Faulty // to the store
	log     testkit.Log
	cancel  context.CancelFunc
	ended   chan error
}

// start starts a host. The work of its role is watched; unless the role brings its own, it
// continues until its context ends.
func (f *fleet) start(role leader.Role) *host {
	f.t.Helper()
	h := &host{link: dlocktest.NewFaulty(f.store), ended: make(chan error, 1)}
	holder := dlock.Holder{Host: fmt.Sprint("host-", len(f.hosts)), PID: 1, ID: "x"}
	var err error
	if h.session, err = dlock.NewSession(h.link, dlock.SessionOptions{Holder: holder}); err != nil {
		f.t.Fatal(err)
	}
	if role.Name == "" {
		role.Name = "relay"
	}
	work := role.Run
	role.Run = func(ctx context.Context, term *leader.Term) error {
		defer f.watch.begin(ctx, holder, term)()
		if work == nil {
			<-ctx.Done()
			return ctx.Err()
		}
		return work(ctx, term)
	}
	if role.Logger == nil {
		role.Logger = slog.New(slog.NewTextHandler(&h.log, nil))
	}
	if h.Elector, err = leader.New(h.session, role); err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(f.t.Context())
	h.cancel = cancel
	go func() { h.ended <- h.Run(ctx) }()
	f.hosts = append(f.hosts, h)
	return h
}

// stop ends Run, which must return nil.
func (h *host) stop(t *testing.T) {
	t.Helper()
	h.cancel()
	if err := <-h.ended; err != nil {
		t.Error(err)
	}
	h.ended <- nil
}

// end ends all hosts, and checks that no lease is held.
func (f *fleet) end() {
	f.t.Helper()
	for _, h := range f.hosts {
		h.link.Heal()
		h.stop(f.t)
		if err := h.session.Close(f.t.Context()); err != nil {
			f.t.Error(err)
		}
	}
	list, err := f.store.List(f.t.Context(), "leader:relay", 10)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, l := range list {
		if l.Holder != (dlock.Holder{}) && l.ExpiresIn > 0 {
			f.t.Errorf("it is still held: %+v", l)
		}
	}
	if f.watch.faults != nil {
		f.t.Error(errors.Join(f.watch.faults...))
	}
}

// leads returns the host that leads; nil: none.
func (f *fleet) leads() *host {
	for _, h := range f.hosts {
		if h.Status().State == leader.StateLeading {
			return h
		}
	}
	return nil
}

// A watch sees every call of the function.
type watch struct {
	mu     sync.Mutex
	now    map[*leader.Term]dlock.Holder
	last   map[int]dlock.Fence // by slot
	begun  []began
	faults []error
}

type began struct {
	at    time.Time
	by    dlock.Holder
	slot  int
	fence dlock.Fence
}

// begin records a term. It reports a fault if there are more valid terms than slots, if two terms
// have one slot, if a fence does not grow, or if a host has two terms.
func (w *watch) begin(ctx context.Context, by dlock.Holder, term *leader.Term) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now == nil {
		w.now, w.last = map[*leader.Term]dlock.Holder{}, map[int]dlock.Fence{}
	}
	for other, who := range w.now {
		if other.Slot() == term.Slot() && other.Valid() {
			w.faults = append(w.faults, fmt.Errorf("slot %d: %v and %v lead", term.Slot(), who, by))
		}
		if who == by {
			w.faults = append(w.faults, fmt.Errorf("%v runs the function twice at once", by))
		}
	}
	if term.Fence() <= w.last[term.Slot()] {
		w.faults = append(w.faults, fmt.Errorf("slot %d: fence %d after %d", term.Slot(), term.Fence(),
			w.last[term.Slot()]))
	}
	if !term.Valid() || ctx.Err() != nil {
		w.faults = append(w.faults, errors.New("a term began that was over"))
	}
	w.last[term.Slot()] = term.Fence()
	w.now[term] = by
	w.begun = append(w.begun, began{time.Now(), by, term.Slot(), term.Fence()})
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.now, term)
	}
}

func (w *watch) terms() []began {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]began(nil), w.begun...)
}
