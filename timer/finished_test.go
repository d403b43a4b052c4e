package timer_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// A timer with an At is removed ten minutes after its last tick, or later if a run is in progress.
// Until then Explain, Status and metrics show what happened to it. After that they do not, and its
// name is free. Other timers remain: timers that are only triggered, and timers whose schedule
// fails or returns no tick.
//
// Fails when planner.finish ignores places, when setNext does not schedule a call of finish, or
// schedules one for any schedule, or when takeDue treats a schedule that has failed as one that has
// ended.
func TestFinishedTimersLeave(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		reg := newRegistry()
		began := time.Now()
		once := schedule.At(began.Add(time.Minute))
		fails := func(at time.Time) time.Time { panic("no calendar") }
		broken := scheduleFunc(func(at time.Time) time.Time {
			if at.After(began.Add(30 * time.Second)) {
				fails(at)
			}
			return at.Truncate(time.Second).Add(time.Second)
		})
		user := scheduleFunc(func(at time.Time) time.Time {
			if at.Before(began.Add(time.Minute)) {
				return began.Add(time.Minute)
			}
			return time.Time{}
		})
		h := f.start(timer.Config{Registerer: reg},
			timer.Timer{Name: "short", Schedule: schedule.Except(once, schedule.Dates("", "2000-02-01")),
				Run: f.handler(0)},
			timer.Timer{Name: "long", Schedule: once, Run: f.handler(25 * time.Minute)},
			timer.Timer{Name: "times", Schedule: schedule.Times(2, began, schedule.Every(time.Minute).From(began)),
				Run: f.handler(0)},
			timer.Timer{Name: "local", Schedule: once, LocalOnly: true, Run: f.handler(0)},
			timer.Timer{Name: "dark", Schedule: once, Run: f.handler(0),
				Blackouts: []schedule.Blackout{schedule.Between(began, began.Add(time.Hour))}},
			timer.Timer{Name: "past", Schedule: schedule.At(began.Add(-2 * time.Hour)), Run: f.handler(0)},
			timer.Timer{Name: "twice", Schedule: schedule.At(began.Add(time.Minute), began.Add(2*time.Hour)),
				Run: f.handler(0)},
			timer.Timer{Name: "triggered", Run: f.handler(0)},
			timer.Timer{Name: "user", Schedule: user, LocalOnly: true, Run: f.handler(0)},
			timer.Timer{Name: "broken", Schedule: broken, LocalOnly: true, Run: f.handler(0)},
		)
		left := func() (names []string) {
			for _, st := range h.Status().Timers {
				names = append(names, st.Name)
			}
			return names
		}
		want := func(names ...string) {
			t.Helper()
			if got := left(); !slices.Equal(got, names) {
				t.Errorf("after %v there are %v, want %v", time.Since(began), got, names)
			}
			for series := range values(t, reg) {
				_, labels, _ := strings.Cut(series, " ")
				name, _, _ := strings.Cut(labels, " ")
				if slices.Contains([]string{"short", "long", "local", "dark", "past", "times"}, name) &&
					!slices.Contains(names, name) {
					t.Errorf("after %v there is %s", time.Since(began), series)
				}
			}
		}
		all := []string{"broken", "dark", "local", "long", "past", "short", "times", "triggered", "twice", "user"}
		time.Sleep(9*time.Minute + 30*time.Second)
		want(all...)
		if err := h.Trigger(t.Context(), "past"); err != nil {
			t.Errorf("one that has not left yet: %v", err)
		}
		if x, err := h.Explain(t.Context(), "dark", time.Time{}); err != nil || x.Reason != timer.ReasonBlackout {
			t.Errorf("why it did not run: %v, %v", x, err)
		}
		time.Sleep(time.Minute)
		want("broken", "dark", "local", "long", "short", "times", "triggered", "twice", "user")
		time.Sleep(time.Minute)
		want("broken", "long", "triggered", "twice", "user")
		_, explained := h.Explain(t.Context(), "short", time.Time{})
		for what, err := range map[string]error{"Trigger": h.Trigger(t.Context(), "short"),
			"Remove": h.Remove(t.Context(), "short"), "Explain": explained} {
			if !errors.Is(err, timer.ErrNoTimer) {
				t.Errorf("%s: %v, want ErrNoTimer", what, err)
			}
		}
		if err := h.Register(timer.Timer{Name: "short", Schedule: schedule.At(time.Now().Add(time.Minute)),
			Run: f.handler(0)}); err != nil {
			t.Errorf("its name is not free: %v", err)
		}
		time.Sleep(10 * time.Minute)
		want("broken", "long", "short", "triggered", "twice", "user")
		time.Sleep(time.Minute + time.Second)
		want("broken", "long", "triggered", "twice", "user")
		time.Sleep(time.Until(began.Add(27 * time.Minute)))
		if st := must(h.Status().Timer("long")); st.Last == nil || st.Last.Outcome != timer.OutcomeOK {
			t.Errorf("it has ended and left, or not ended: %+v", st)
		}
		time.Sleep(10 * time.Minute)
		want("broken", "triggered", "twice", "user")
		time.Sleep(2 * time.Hour)
		want("broken", "triggered", "user")
		f.Stop()
		f.watch.check(t)
		for _, name := range []string{"short", "long", "local", "past", "twice"} {
			if ran, _ := f.watch.ticks(name); ran == 0 {
				t.Errorf("%s did not run", name)
			}
		}
	})
}

// If a handler ignores its context, Status shows its timer for as long as the handler runs.
//
// Fails when a finished timer is removed at a fixed time.
func TestFinishedTimersWaitForTheirRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		release := make(chan struct{})
		h := f.start(rarely, timer.Timer{Name: "a", Schedule: schedule.At(time.Now().Add(time.Second)),
			MaxRunTime: time.Minute, Run: func(context.Context) error { <-release; return nil }})
		time.Sleep(24 * time.Hour)
		if st, ok := h.Status().Timer("a"); !ok || len(st.Running) != 1 || !st.Running[0].Overdue {
			t.Errorf("%+v: want the run in progress", st)
		}
		close(release)
		time.Sleep(11 * time.Minute)
		if st, ok := h.Status().Timer("a"); ok {
			t.Errorf("it is still there: %+v", st)
		}
		f.Stop()
	})
}

// A tick of an At that waits for another attempt runs, even if the host was suspended until after
// the timer would have been removed.
//
// Fails when takeDue removes a timer whose tick it has just taken.
func TestFinishedTimersWaitForTheirTicks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{}, timer.Timer{Name: "a", Schedule: schedule.At(time.Now().Add(time.Minute)),
			Run: f.handler(time.Second)})
		h.Link.Inject(dlocktest.Error(&dlock.NotAcquiredError{Name: "timer:a", Slots: 1,
			Reason: dlock.ReasonQuarantine, ExpiresIn: 20 * time.Second}), dlocktest.OpAcquire)
		time.Sleep(65 * time.Second)
		h.Link.Heal()
		timer.SetSkew(h.Scheduler, 20*time.Minute) // as if the host had been suspended
		timer.Poke(h.Scheduler)
		time.Sleep(time.Minute)
		if n, _ := f.runs("a"); n != 1 {
			t.Errorf("%d runs, want one", n)
		}
		time.Sleep(11 * time.Minute)
		if st, ok := h.Status().Timer("a"); ok {
			t.Errorf("it is still there: %+v", st)
		}
		f.ended()
	})
}
