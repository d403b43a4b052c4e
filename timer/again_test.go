package timer_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// breaks is a blackout that can be broken. It then returns an end that is not later.
type breaks struct{ broken atomic.Bool }

func (b *breaks) Until(t time.Time) time.Time {
	if b.broken.Load() {
		return t.Add(-time.Second)
	}
	return time.Time{}
}

// A timer may take the name of a removed timer whose last run has not ended. If the blackout of the
// new timer fails, that is logged, even if the blackout of the removed timer had already failed.
//
// Fails when planner.add does not reset blackoutFailed.
func TestBlackoutOfATimerThatTakesAName(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log testkit.Log
		f := newFleet(t)
		var b breaks
		release := make(chan struct{})
		job := timer.Timer{Name: "job", Schedule: schedule.Every(time.Second), Blackouts: []schedule.Blackout{&b},
			Run: func(context.Context) error { <-release; return nil }}
		h := f.start(timer.Config{Logger: textLogger(&log)}, job)
		b.broken.Store(true)
		time.Sleep(3 * time.Second)
		if err := h.Trigger(t.Context(), "job"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.Remove(ctx, "job"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		b.broken.Store(false)
		if err := h.Register(job); err != nil {
			t.Fatal(err)
		}
		b.broken.Store(true)
		time.Sleep(3 * time.Second)
		if n := strings.Count(log.String(), "a blackout failed"); n != 2 {
			t.Errorf("%d lines, want one for each timer:\n%s", n, log.String())
		}
		close(release)
		synctest.Wait()
		f.Stop()
	})
}

// A timer with a fixed delay takes the name of a removed timer without one, while the slot of the
// last run is being released. The delay counts from the end of that run, and no tick comes earlier.
//
// Fails when runner.finish reads the settings only before the release.
func TestFixedDelayOfATimerThatTakesAName(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		job := timer.Timer{Name: "job", Schedule: schedule.Every(24 * time.Hour), Run: f.handler(time.Minute)}
		h := f.start(timer.Config{}, job)
		time.Sleep(time.Second)
		if err := h.Trigger(t.Context(), "job"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		h.Link.Inject(dlocktest.Slow(900*time.Millisecond), dlocktest.OpRelease)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second+100*time.Millisecond)
		defer cancel()
		if err := h.Remove(ctx, "job"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		job.Schedule = schedule.After(5 * time.Hour)
		if err := h.Register(job); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		st, _ := h.Status().Timer("job")
		h.Link.Heal()
		if st.Skipped[timer.ReasonTickEarly] != 0 {
			t.Errorf("skipped %v, want none", st.Skipped)
		}
		f.Stop()
	})
}
