package timer

import (
	"context"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// Answers overtake each other: what was read before an update must not undo what was heard after
// it. A store that has lost its data is believed.
//
// Fails when outdated compares nothing, and when it believes no store without overrides.
func TestOlderAnswersUndoNoOverride(t *testing.T) {
	s, err := New(Config{Lock: memlock.New()}, Timer{Name: "a", Run: func(context.Context) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	e := s.registry.get("a")
	ann := dlock.Origin{By: "ann"}
	is := func(what string, paused bool, limit int) {
		t.Helper()
		ts, _ := s.Status().Timer("a")
		if (ts.Paused != nil) != paused || ts.LimitOverride != limit {
			t.Errorf("%s: paused %+v, limit %d; want %v and %d", what, ts.Paused, ts.LimitOverride, paused, limit)
		}
	}
	answer := func(info dlock.Info) {
		v := s.store.views
		v.mu.Lock()
		defer v.mu.Unlock()
		v.applyOverrides(e, info, nil)
	}
	s.store.views.take(e, dlock.ControlState{Version: 5, Pause: &dlock.Pause{Origin: ann, For: time.Hour},
		Limit: &dlock.Limit{Origin: ann, Slots: 7}})
	is("read", true, 7)
	answer(dlock.Info{Version: 4, SlotLimit: 3})
	is("an answer from before the update", true, 7)
	s.store.views.take(e, dlock.ControlState{Version: 3})
	is("overrides from before the update", true, 7)
	answer(dlock.Info{Version: 6, SlotLimit: 2})
	is("a later answer", false, 2)
	answer(dlock.Info{})
	is("a store that lost its data", false, 0)
}
