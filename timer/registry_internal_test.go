package timer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

// However many goroutines ask at the same moment, no more places are taken than the limit allows. A
// caller that waits until all places are free is woken when the last place is freed.
//
// Fails when registry.enter checks the limit before it has locked the mutex, or when registry.leave
// does not wake the caller.
func TestPlacesNeverExceedTheLimit(t *testing.T) {
	g := newRegistry(Config{})
	s := newSettings(Timer{Name: "a"}, false)
	s.entry = newEntry(s.timer)
	if _, errs := g.add([]*settings{s}, map[string]bool{"a": true}); errs != nil {
		t.Fatal(errs)
	}
	if why := g.enter(s, 3); why != ReasonDraining {
		t.Errorf("before Run: %q", why)
	}
	g.begin(func() {})
	var taken, most atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				if g.enter(s, 3) != "" {
					continue
				}
				for n := taken.Add(1); n > most.Load(); {
					most.Store(n)
				}
				taken.Add(-1)
				g.leave(s)
			}
		})
	}
	all.Wait()
	if most.Load() > 3 || g.busy() || s.placesTaken() != 0 {
		t.Errorf("%d at once, %d left", most.Load(), s.placesTaken())
	}
	if why := g.enter(s, 1); why != "" {
		t.Fatal(why)
	}
	if g.remove("a") != s || g.get("a") != nil || g.named("a") != s {
		t.Error("a timer that was removed is not found as long as a place of it is taken")
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.await(over, s.registration, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("await returned %v while a place was taken", err)
	}
	g.setPhase(PhaseDraining)
	idle := g.whenIdle()
	select {
	case <-idle:
		t.Error("idle while a place is taken")
	default:
	}
	g.leave(s)
	<-idle
	if err := g.await(t.Context(), s.registration, 0); err != nil || g.named("a") != nil {
		t.Errorf("%v", err)
	}
}

// inForce returns settings that have taken effect, like the settings of a new timer.
func inForce(s *settings) *settings {
	s.entry, s.registration = newEntry(s.timer), new(registration)
	s.entry.settings.Store(s)
	return s
}

// busy reports whether Run would have to wait for places or background calls.
func (r *registry) busy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.active.n > 0
}

// A timer is removed while one of its events is being counted. Without a TimerLabel the registry
// does not read the counts, because another mutex guards them.
//
// Fails, with and without the race detector, when a registry without a TimerLabel has labels.
func TestRegistryLeavesCountsAlone(t *testing.T) {
	g, l := newRegistry(Config{}), &ledger{metered: true}
	s := newSettings(Timer{Name: "a"}, false)
	s.entry = newEntry(s.timer)
	if _, errs := g.add([]*settings{s}, map[string]bool{"a": true}); errs != nil {
		t.Fatal(errs)
	}
	r := &s.entry.record
	l.count(r, func(*tally) {})
	own := r.tally
	var counts sync.WaitGroup
	counts.Go(func() {
		s.entry.mu.Lock()
		defer s.entry.mu.Unlock()
		r.tally = own // as the first count does
	})
	if g.remove("a") != s {
		t.Error("not removed")
	}
	counts.Wait()
	if own.timers != 0 {
		t.Errorf("a tally without a label counts %d timers", own.timers)
	}
}
