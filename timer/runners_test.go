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
// limits in force and what they do without the store.
//
// Fails when a state belongs to another part, when a timer is left out, or when a timer that never
// calls the store seems to need it.
func TestSchedulerShowsItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		link := dlocktest.NewFaulty(f.store)
		idle := func(context.Context) error { return nil }
		h := f.startOn(link, timer.Config{}, timer.Timer{Name: "b", MaxConcurrency: 3, MaxPerHost: 2, Run: idle},
			timer.Timer{Name: "a", MaxConcurrency: timer.NoLimit, MaxPerTick: timer.NoLimit, Run: idle},
			timer.Timer{Name: "c", OnStoreDown: timer.StoreDownSkip, Run: idle},
			timer.Timer{Name: "d", LocalOnly: true, Run: idle})
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
		var timers []string
		h.RegisteredTimers(func(name string, most, perHost int, down string) {
			timers = append(timers, fmt.Sprint(name, " ", most, " ", perHost, " ", down))
		})
		slices.Sort(timers)
		want := []string{"a -1 -1 none", "b 3 2 run_local", "c 1 1 skip", "d 1 1 none"}
		if !slices.Equal(timers, want) {
			t.Errorf("got %q, want %q", timers, want)
		}
	})
}
