package timer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/timer"
)

// A Scheduler shows its phase, what it knows of the store, its heartbeat, and its timers with the
// limits in force.
//
// Fails when a state belongs to another part, or a timer is left out.
func TestSchedulerShowsItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		link := dlocktest.NewFaulty(f.store)
		idle := func(context.Context) error { return nil }
		h := f.startOn(link, timer.Config{}, timer.Timer{Name: "b", MaxConcurrency: 3, Run: idle},
			timer.Timer{Name: "a", MaxConcurrency: timer.NoLimit, Run: idle})
		seen := func(want ...string) {
			t.Helper()
			var got []string
			h.Runners(func(kind, _, state string, changedAt time.Time, err error) {
				if changedAt.IsZero() && kind != "heartbeat" {
					t.Errorf("%s: since when?", kind)
				}
				got = append(got, fmt.Sprint(kind, " ", state, " ", err != nil))
			})
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		time.Sleep(time.Minute)
		seen("scheduler running false", "prober store_up false", "heartbeat renewing false")
		link.Inject(dlocktest.Error(errors.New("down")))
		time.Sleep(time.Minute)
		seen("scheduler running false", "prober store_down true", "heartbeat failing true")
		link.Heal()
		timers := map[string]int{}
		h.RegisteredTimers(func(name string, most int) { timers[name] = most })
		if len(timers) != 2 || timers["a"] != timer.NoLimit || timers["b"] != 3 {
			t.Errorf("%v", timers)
		}
	})
}
