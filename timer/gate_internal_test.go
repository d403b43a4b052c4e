package timer

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/schedule"
)

// gated returns a gate with the parts behind it, and one timer.
func gated(t *testing.T, tm Timer) (*gate, *settings) {
	t.Helper()
	s, err := New(Config{Store: memlock.New(), Logger: slog.New(slog.DiscardHandler)}, tm)
	if err != nil {
		t.Fatal(err)
	}
	return s.gate, s.registry.get(tm.Name)
}

// The gate returns the first of several reasons why no run starts.
//
// Fails when a case of gate.why is missing, or when Trigger respects a cached "full".
func TestGateSaysWhy(t *testing.T) {
	g, s := gated(t, Timer{Name: "a", Run: nothing})
	is := func(what string, scheduled bool, want Reason) {
		t.Helper()
		if got, _ := g.why(s, scheduled); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	is("before Run", true, ReasonNotRunning)
	g.registry.begin(func() { g.runner.base = t.Context() })
	is("no reason against a run", true, "")
	full := &dlock.NotAcquiredError{Reason: dlock.ReasonFull}
	s.entry.view.full = fullAnswer{full, time.Since(programStart) + time.Hour, s.limit()}
	is("the store was full a moment ago", true, ReasonFull)
	if _, err := g.why(s, true); !errors.Is(err, dlock.ErrNotAcquired) {
		t.Errorf("the store's answer is %v", err)
	}
	is("the same, for Trigger", false, "")
	g.registry.enter(s, 1)
	is("its place is taken", true, ReasonHostFull)
	g.registry.leave(s)
	g.store.recordAcquire(s.entry.lockName, nil)
	r := g.runner.startRun(tick{s: s}, nil, nil, true)
	is("a run continues without a slot", false, ReasonRejoining)
	r.ctx.end()
	is("that has ended", false, "")
	g.registry.setPhase(PhaseDraining)
	is("the host drains", false, ReasonDraining)
}

// Once the host drains, no tick waits for a call to the store, so no tick is lost there.
//
// Fails when waiting.call makes a tick wait while the host drains, when waiting.close loses one, or
// when either keeps a place.
func TestDrainingHostKeepsNoTick(t *testing.T) {
	g, s := gated(t, Timer{Name: "a", MaxConcurrency: 2, Run: nothing})
	g.registry.begin(func() { g.runner.base = t.Context() })
	g.waiting.inFlight = maxInFlight
	g.try(due(s, 1))
	g.try(due(s, 2)) // overtakes the first tick
	g.registry.enter(s, 2)
	g.registry.setPhase(PhaseDraining)
	for _, p := range g.waiting.close() {
		g.skip(p, ReasonDraining, nil)
		g.waiting.leave(p)
	}
	if g.waiting.awaitCall(t.Context(), s) {
		t.Error("a Trigger got its turn")
	}
	g.acquirer.submit(tick{s: s, at: 3})
	if skipped := s.entry.record.skipped; skipped[ReasonStoreBusy] != 1 || skipped[ReasonDraining] != 2 {
		t.Errorf("skipped: %v", skipped)
	}
	if g.registry.busy() || s.entry.pending != nil {
		t.Errorf("%d places are taken, %+v waits", s.placesTaken(), s.entry.pending)
	}
}

// A timer was removed, and another timer that took its name has a tick in the queue, with its own
// place. A tick of the removed timer that arrives now affects neither.
//
// Fails when waiting.overtake does not check stillScheduled. A place would then be counted for the
// wrong timer, and Remove would wait forever.
func TestTickOfARemovedTimerOvertakesNone(t *testing.T) {
	job := Timer{Name: "a", Schedule: schedule.Every(time.Hour), MaxConcurrency: 3, MaxPerTick: 1, Run: nothing}
	s, err := New(Config{Store: memlock.New(), Logger: slog.New(slog.DiscardHandler)}, job)
	if err != nil {
		t.Fatal(err)
	}
	s.registry.begin(func() { s.runner.base = t.Context() })
	s.waiting.inFlight = maxInFlight
	old := s.registry.get("a")
	s.registry.enter(old, 3) // a run is in progress, so the entry remains
	if _, err := newTimerChange(s).remove("a"); err != nil {
		t.Fatal(err)
	}
	if err := s.Register(job); err != nil {
		t.Fatal(err)
	}
	now := s.registry.get("a")
	if now.entry != old.entry || now.registration == old.registration {
		t.Fatal("the name has two entries, or one registration")
	}
	s.gate.try(due(now, 2))
	s.gate.try(due(old, 1))
	left := s.waiting.close()
	if len(left) != 1 || left[0].s != now || left[0].at != 2 {
		t.Fatalf("%d ticks wait", len(left))
	}
	s.waiting.leave(left[0])
	s.registry.leave(old)
	if old.registration.places != 0 || now.registration.places != 0 || s.registry.busy() {
		t.Errorf("%d and %d places are taken", old.registration.places, now.registration.places)
	}
	if e := now.entry; e.settings.Load() != now || s.registry.get("a") != now {
		t.Error("the timer is no longer registered")
	}
}

// A tick and a Trigger may begin to wait with the new settings before Update has ended the waits
// with the old settings. The tick is tried again, and the Trigger keeps waiting.
//
// Fails when waiting.withdraw drops a tick that has the current settings, or when queue.dismiss
// dismisses all triggers of the timer.
func TestUpdateLosesNothingThatCameSince(t *testing.T) {
	job := Timer{Name: "a", Schedule: schedule.Every(time.Hour), MaxConcurrency: 3, MaxPerTick: 1, Run: nothing}
	s, err := New(Config{Store: memlock.New(), Logger: slog.New(slog.DiscardHandler)}, job)
	if err != nil {
		t.Fatal(err)
	}
	s.start(t.Context())
	t.Cleanup(s.announcer.close)
	s.waiting.inFlight = maxInFlight
	set, _, err := newTimerChange(s).prepare(job, s.planner.now())
	if err != nil {
		t.Fatal(err)
	}
	s.registry.mu.Lock()
	old, _, err := s.planner.update(set)
	s.registry.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	e, q := set.entry, &s.waiting.callQueue
	s.gate.try(due(set, 1))
	q.triggers = []*waitingTrigger{{s: old, ready: make(chan struct{})}, {s: set, ready: make(chan struct{})}}
	newTimerChange(s).withdraw(e)
	if p := e.pending; p == nil || p.on != forTime || q.n != 0 || set.registration.places != 0 {
		t.Errorf("%+v waits, %d in the queue, %d places", p, q.n, set.registration.places)
	}
	if len(q.triggers) != 1 || q.triggers[0].s != set {
		t.Errorf("%d triggers wait", len(q.triggers))
	}
}

// due returns a tick that is due at that time.
func due(s *settings, at int64) *pending {
	s.entry.ticks.set(at, time.Time{})
	return &pending{tick: tick{s: s, at: at}}
}
