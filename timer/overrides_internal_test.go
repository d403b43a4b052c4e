package timer

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
)

var ann = driver.Cause{By: "ann"}

// overridden returns overrides, a timer, and a counter of the prober's wake-ups.
func overridden() (o *overrides, s *settings, woken *int) {
	woken = new(int)
	o = &overrides{log: newLineLog(slog.New(slog.DiscardHandler)), registry: newRegistry(Config{}),
		wake: func() { *woken++ }}
	s = newSettings(Timer{Name: "a", Run: func(context.Context) error { return nil }}, true)
	s.entry = newEntry(s.timer)
	o.registry.mu.Lock()
	o.registry.add([]*settings{s}, nil)
	o.registry.mu.Unlock()
	o.registry.setPhase(PhaseRunning)
	return o, s, woken
}

// Answers may arrive out of order. An answer that was read before an update must not undo a later
// one. If a store has lost its data, its answers still count.
//
// Fails when advanceTo does not compare versions, or when it ignores a store without overrides.
func TestOlderAnswersUndoNoOverride(t *testing.T) {
	o, s, _ := overridden()
	is := func(what string, paused bool, limit int) {
		t.Helper()
		var st TimerStatus
		o.fill(s, &st)
		if (st.Paused != nil) != paused || st.LimitOverride != limit || (o.paused(s) != nil) != paused {
			t.Errorf("%s: paused %+v (%v), limit %d; want %v and %d", what, st.Paused, o.paused(s), st.LimitOverride,
				paused, limit)
		}
	}
	o.update(s, driver.ControlState{Version: 5, Pause: &driver.Pause{Cause: ann, For: time.Hour},
		Limit: &driver.LimitOverride{Cause: ann, Slots: 7}})
	is("read", true, 7)
	o.applyAnswer(s, driver.Info{Version: 4, SlotLimit: 3}, nil)
	is("an answer from before the update", true, 7)
	o.update(s, driver.ControlState{Version: 3})
	is("overrides from before the update", true, 7)
	o.applyAnswer(s, driver.Info{Version: 6, SlotLimit: 2}, nil)
	is("a later answer", false, 2)
	o.applyAnswer(s, driver.Info{}, nil)
	is("a store that lost its data", false, 0)
}

// The prober is woken for a new version, and reads it once.
//
// Fails when noteVersion wakes it for every version, or when takeUnread ignores the version that
// was read.
func TestOverridesAreReadOnce(t *testing.T) {
	o, _, woken := overridden()
	is := func(what string, version int64, unread bool, times int) {
		t.Helper()
		if v, ok := o.takeUnread(); v != version || ok != unread || *woken != times {
			t.Errorf("%s: version %d, unread %v, woken %d times; want %d, %v and %d", what, v, ok, *woken, version,
				unread, times)
		}
	}
	is("nothing was heard", 0, false, 0)
	o.noteVersion(3)
	is("heard", 3, true, 1)
	o.noteVersion(3)
	o.noteVersion(2)
	is("heard the same version again, and an older one", 3, true, 1)
	o.readVersion = 3
	is("read", 3, false, 1)
	o.noteVersion(4)
	is("a later one", 4, true, 2)
	o.readAgain() // a timer was registered during the read
	o.readVersion = 4
	is("read, but not for that timer", 4, true, 2)
	o.readVersion = 4
	is("read for all", 4, false, 2)
}

// Each time a timer is triggered, a host that has the timer reads its triggers once.
//
// Fails when overrides.update does not record the trigger.
func TestTriggerIsLookedForOnce(t *testing.T) {
	o, s, _ := overridden()
	version, start := int64(0), time.Now()
	is := func(what string, at time.Duration, want bool) {
		t.Helper()
		version++
		got := o.update(s, driver.ControlState{Version: version,
			Trigger: &driver.Trigger{Cause: ann, At: start.Add(at), Age: time.Hour}})
		if got != want {
			t.Errorf("%s: %v", what, got)
		}
	}
	is("new", time.Second, true)
	is("the same", time.Second, false)
	is("a later one", 4*time.Second, true)
	o.registry.mu.Lock()
	o.registry.remove("a")
	o.registry.mu.Unlock()
	is("the timer was removed", 5*time.Second, false)
}

// The store's "full" under one limit is dropped when the limit is overridden.
//
// Fails when stillFull does not compare the limits.
func TestOverriddenLimitIsNotFull(t *testing.T) {
	o, s, _ := overridden()
	v := &views{log: o.log, ledger: new(ledger)}
	s.entry.ticks.set(time.Now().UnixMicro(), time.Now().Add(time.Second))
	v.refused(tick{s: s},
		&dlock.NotAcquiredError{Reason: dlock.ReasonFull, HeldFor: time.Minute, ExpiresIn: time.Hour})
	if v.stillFull(s) == nil {
		t.Fatal("the answer was not remembered")
	}
	o.applyAnswer(s, driver.Info{Version: 1, SlotLimit: 2}, nil)
	if no := v.stillFull(s); no != nil {
		t.Errorf("the limit is 2, and still: %v", no)
	}
}
