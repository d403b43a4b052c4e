package timer_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// A tick that waits in line, for its turn to call the store, or for the end of a quarantine is
// tried with the new settings. The same holds for a Trigger. A tick whose call to the store is in
// progress keeps the old settings.
//
// Fails when the new settings do not apply to waiting ticks and Triggers.
func TestUpdateTakesOverWhatWaits(t *testing.T) {
	minutely := schedule.Every(time.Minute).Offset(0)
	t.Run("in line", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			f := newFleet(t)
			var ran versions
			release := make(chan struct{})
			h := f.start(timer.Config{MaxRuns: 1},
				timer.Timer{Name: "busy", Run: func(context.Context) error { <-release; return nil }},
				timer.Timer{Name: "a", Schedule: minutely, Run: ran.handler(f, "old", 0)},
				timer.Timer{Name: "other", Schedule: minutely, Run: ran.handler(f, "other schedule", 0)})
			if err := h.Trigger(t.Context(), "busy"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + time.Second)))
			triggered := make(chan error, 1)
			go func() { triggered <- h.Trigger(t.Context(), "a") }()
			synctest.Wait()
			for _, tm := range []timer.Timer{
				{Name: "a", MaxConcurrency: 2, MaxPerTick: 2, Schedule: minutely, Run: ran.handler(f, "new", 0)},
				{Name: "other", Schedule: schedule.Every(time.Hour), Run: ran.handler(f, "other schedule", 0)},
			} {
				if err := h.Update(tm); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			if n := h.Status().Waiting; n != 2 {
				t.Errorf("%d wait, want a tick and a Trigger", n)
			}
			close(release)
			if err := <-triggered; err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
			if ran.of("new") != 2 || ran.of("old") != 0 || ran.of("other schedule") != 0 {
				t.Errorf("ran %v, want the tick and the Trigger with the new handler", ran.runs)
			}
			f.Stop()
			if _, skipped := h.Accounted(t); skipped[timer.ReasonDraining] != 1 || len(skipped) != 1 {
				t.Errorf("skipped %v, want the tick of the schedule that was changed", skipped)
			}
		})
	})
	t.Run("for the store", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			f := newFleet(t)
			var ran versions
			timers := many(200, minutely, f.handler(0))
			for i := range timers {
				timers[i].Run = ran.handler(f, "old", 0)
			}
			h := f.start(timer.Config{}, timers...)
			h.Link.Inject(dlocktest.Slow(200*time.Millisecond), dlocktest.OpAcquire)
			time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + 100*time.Millisecond)))
			triggered := make(chan error, 1)
			go func() { triggered <- h.Trigger(t.Context(), "199") }()
			synctest.Wait()
			for _, tm := range timers {
				tm.Run, tm.MaxConcurrency, tm.MaxPerTick = ran.handler(f, "new", 0), 3, 1
				if err := h.Update(tm); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(30 * time.Second)
			if err := <-triggered; err != nil {
				t.Error(err)
			}
			if ran.of("old") != 64 || ran.of("new") != 200-64+1 {
				t.Errorf("ran %v, want 64 ticks whose calls were under way, and 136 and a Trigger", ran.runs)
			}
			f.Stop()
			if _, skipped := h.Accounted(t); len(skipped) != 0 {
				t.Errorf("skipped %v", skipped)
			}
		})
	})
	t.Run("for the end of a quarantine", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			f := newFleet(t)
			var ran versions
			h := f.start(timer.Config{}, timer.Timer{Name: "a", Schedule: minutely, Run: ran.handler(f, "old", 0)})
			h.Link.Inject(dlocktest.Error(&dlock.NotAcquiredError{Name: "timer:a", Slots: 1,
				Reason: dlock.ReasonQuarantine, ExpiresIn: 20 * time.Second}), dlocktest.OpAcquire)
			time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + 10*time.Second)))
			h.Link.Heal()
			if err := h.Update(timer.Timer{Name: "a", Schedule: minutely, Run: ran.handler(f, "new", 0)}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(30 * time.Second)
			if ran.of("old") != 0 || ran.of("new") != 1 {
				t.Errorf("ran %v, want the tick that waited", ran.runs)
			}
			f.Stop()
			if _, skipped := h.Accounted(t); len(skipped) != 0 {
				t.Errorf("skipped %v", skipped)
			}
		})
	})
}

// A waiting run of RunOnStart is claimed as it would have been before the update. With
// RunOnStartOnce it runs once in the fleet, with RunOnStartEachHost on every host.
//
// Fails when tick.claim uses the new settings to determine the kind of tick.
func TestI3UpdateKeepsTheClaimOfAStart(t *testing.T) {
	for _, c := range []struct {
		from, to timer.RunOnStartPolicy
		runs     int
	}{
		{timer.RunOnStartOnce, timer.RunOnStartNever, 1}, {timer.RunOnStartOnce, timer.RunOnStartEachHost, 1},
		{timer.RunOnStartEachHost, timer.RunOnStartOnce, 2},
	} {
		t.Run(fmt.Sprint(c.from, " to ", c.to), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				job := timer.Timer{Name: "job", Schedule: tenMinutes, MaxConcurrency: 2, MaxPerTick: 1,
					RunOnStart: c.from, Run: f.handler(time.Second)}
				time.Sleep(time.Minute)
				for range 2 {
					h := f.NewHost(dlocktest.NewFaulty(f.store), timer.Config{}, job)
					h.Link.Inject(dlocktest.Error(&dlock.NotAcquiredError{Name: "timer:job", Slots: 2,
						Reason: dlock.ReasonQuarantine, ExpiresIn: 20 * time.Second}), dlocktest.OpAcquire)
					f.Run(t.Context(), h)
				}
				time.Sleep(5 * time.Second)
				job.RunOnStart = c.to
				for _, h := range f.Hosts {
					h.Link.Heal()
					if err := h.Update(job); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Minute)
				if n, _ := f.runs("job"); n != c.runs {
					t.Errorf("%d runs at the start of two hosts, want %d", n, c.runs)
				}
				f.ended()
			})
		})
	}
}

// If a timer is updated while its tick that waits for a run to end is being tried, the tick keeps
// waiting, with the new settings.
//
// Fails when decide causes the tick to be skipped because its timer was updated.
func TestUpdateWhileAWaitingTickIsTried(t *testing.T) {
	for _, c := range []struct {
		onFull  timer.FullPolicy
		runs    int
		skipped timer.Reason
	}{{timer.FullWait, 1, ""}, {timer.FullSkip, 0, timer.ReasonFull}} {
		t.Run(c.onFull.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				held, err := otherSession(t, f.store).Semaphore("timer:job", 1).TryAcquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				job := timer.Timer{Name: "job", Schedule: tenMinutes, OnFull: timer.FullWait,
					Run: f.handler(time.Second)}
				h := f.start(timer.Config{}, job)
				time.Sleep(12 * time.Minute)
				h.Link.Inject(dlocktest.Slow(500*time.Millisecond), dlocktest.OpAcquire)
				for n := h.Link.Calls(dlocktest.OpAcquire); h.Link.Calls(dlocktest.OpAcquire) == n; {
					time.Sleep(50 * time.Millisecond)
				}
				job.OnFull = c.onFull
				if err := h.Update(job); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				h.Link.Heal()
				time.Sleep(10 * time.Second)
				if err := held.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(30 * time.Second)
				if n, _ := f.runs("job"); n != c.runs {
					t.Errorf("%d runs, want %d", n, c.runs)
				}
				if skipped := f.ended(); len(skipped) != 1-c.runs || skipped[c.skipped] != uint64(1-c.runs) {
					t.Errorf("skipped %v", skipped)
				}
			})
		})
	}
}

// If the clock was set back by more than an interval, an updated timer does not wait until the
// clock shows the latest tick again. If the clock was set back by less, the timer does wait, so
// that the tick is not tried twice.
//
// Fails when planner.proceed treats the latest tick as past, or ignores it.
func TestUpdateAfterTheClockWasSetBack(t *testing.T) {
	for _, c := range []struct {
		ahead time.Duration
		to    time.Duration // the new interval
		runs  int
	}{{48 * time.Hour, time.Hour, 24}, {48 * time.Hour, 2 * time.Hour, 12}, {30 * time.Minute, time.Hour, 23}} {
		t.Run(fmt.Sprint(c.ahead, c.to), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				var ran versions
				job := timer.Timer{Name: "job", Schedule: schedule.Every(time.Hour).Offset(0), LocalOnly: true,
					Run: ran.handler(f, "old", 0)}
				h := f.start(rarely, job)
				time.Sleep(45 * time.Minute)
				timer.SetSkew(h.Scheduler, c.ahead)
				timer.Poke(h.Scheduler)
				time.Sleep(2 * time.Hour)
				timer.SetSkew(h.Scheduler, 0)
				timer.Poke(h.Scheduler)
				time.Sleep(time.Second)
				job.Schedule, job.Run = schedule.Every(c.to).Offset(0), ran.handler(f, "new", 0)
				if err := h.Update(job); err != nil {
					t.Fatal(err)
				}
				time.Sleep(24 * time.Hour)
				if n := ran.of("new"); n != c.runs {
					t.Errorf("%d runs in a day, want %d", n, c.runs)
				}
				f.ended()
			})
		})
	}
}
