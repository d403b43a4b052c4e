package timer

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/schedule"
)

// A tick that has waited for a run to end and the next one may both come to the line of MaxRuns:
// the later one stays there, and the earlier is not forgotten.
//
// Fails when enterOrWait lets one tick replace the other.
func TestEarlierTickLeavesTheLine(t *testing.T) {
	s, err := New(Config{MaxRuns: 1}, Timer{Name: "b", Run: nothing},
		Timer{Name: "a", Schedule: schedule.Every(time.Hour), OnFull: FullWait, Run: nothing})
	if err != nil {
		t.Fatal(err)
	}
	g := s.registry
	g.setPhase(PhaseRunning)
	set := g.get("a")
	if why := g.enter(g.get("b"), 1); why != "" {
		t.Fatal(why)
	}
	for _, c := range []struct {
		at, earlier int64
		waits       bool
	}{{2, 0, true}, {1, 0, false}, {3, 2, true}} {
		why, waits, earlier := g.enterOrWait(tick{s: set, at: c.at}, 1)
		if waits != c.waits || !waits && why != ReasonMaxRuns || earlier.at != c.earlier {
			t.Errorf("tick %d: %q, waits %v, in place of %d", c.at, why, waits, earlier.at)
		}
	}
	if left := g.closeLine(); len(left) != 1 || left[0].at != 3 {
		t.Errorf("%+v", left)
	}
}

// A tick that begins to wait for a run to end while its timer is removed does not wait on: either
// enter sees that it was removed, or withdraw takes the tick out.
//
// Fails when withdraw may look before enter has stored the tick, and enter before it was removed.
func TestNoTickOfARemovedTimerWaits(t *testing.T) {
	s, err := New(Config{Lock: memlock.New(), Logger: slog.New(slog.DiscardHandler)},
		Timer{Name: "a", Schedule: schedule.Every(time.Hour), OnFull: FullWait, Run: nothing})
	if err != nil {
		t.Fatal(err)
	}
	s.registry.setPhase(PhaseRunning)
	set := s.registry.get("a")
	set.entry.ticks.set(1, time.Time{})
	left := 0
	for range 200_000 {
		set.registration.removed.Store(false)
		var both sync.WaitGroup
		both.Go(func() { s.waiting.refuse(tick{s: set, at: 1}, ReasonFull, nil, false) })
		both.Go(func() {
			s.registry.mu.Lock()
			set.registration.removed.Store(true)
			s.registry.mu.Unlock()
			s.waiting.withdraw(set.entry)
		})
		both.Wait()
		if set.entry.pending != nil {
			left++
			s.waiting.withdraw(set.entry)
		}
	}
	if left > 0 {
		t.Errorf("%d times a tick of a removed timer waited on", left)
	}
}
