package timer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// A timer takes the name of a removed timer whose run is in progress. Its own delay counts from the
// end of that run.
//
// Fails when the end of a run is recorded only for the timer to which it belongs.
func TestFixedDelayRegisteredAgain(t *testing.T) {
	for name, c := range map[string]struct {
		old, new time.Duration
		local    bool
	}{
		"shorter":        {10 * time.Hour, time.Minute, false},
		"shorter, local": {10 * time.Hour, time.Minute, true},
		"longer, local":  {time.Hour, 5 * time.Hour, true},
		"Every, local":   {0, 5 * time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				var s spans
				job := timer.Timer{Name: "job", LocalOnly: c.local, Schedule: schedule.After(c.old),
					Run: s.always(10 * time.Minute)}
				if c.old == 0 {
					job.Schedule = schedule.Every(24 * time.Hour)
				}
				h := f.start(timer.Config{}, job)
				time.Sleep(time.Second)
				if err := h.Trigger(t.Context(), "job"); err != nil && c.old == 0 {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := h.Remove(ctx, "job"); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatal(err)
				}
				job.Schedule = schedule.After(c.new)
				if err := h.Register(job); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10*time.Minute + c.new)
				f.ended()
				if n := s.gaps(t, c.new, c.new+time.Second); n != 2 {
					t.Errorf("%d runs, must be 2", n)
				}
			})
		})
	}
}

// A delay that Update sets counts from the last run on this host, even if that run ended before the
// Update.
//
// Fails when the end of a run is recorded only for timers with a fixed delay.
func TestFixedDelayAfterAnUpdate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var s spans
		job := timer.Timer{Name: "job", LocalOnly: true, Schedule: tenMinutes, Run: s.always(time.Second)}
		h := f.start(timer.Config{}, job)
		time.Sleep(11 * time.Minute)
		job.Schedule = schedule.After(time.Hour)
		if err := h.Update(job); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		f.ended()
		if n := s.gaps(t, time.Hour, time.Hour+time.Second); n != 2 {
			t.Errorf("%d runs, must be 2", n)
		}
	})
}

// If the store answers about the delay from before an Update, the answer does not move the next
// tick after the Update.
//
// Fails when the answer moves the tick of any timer that has the name.
func TestFixedDelayUpdatedDuringACall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var s spans
		job := timer.Timer{Name: "job", Schedule: schedule.After(10 * time.Hour), Run: s.always(time.Second)}
		f.start(timer.Config{}, job)
		time.Sleep(time.Minute)
		f.ended()
		h := f.NewHost(dlocktest.NewFaulty(f.store), timer.Config{}, job)
		h.Link.Inject(dlocktest.Slow(500*time.Millisecond), dlocktest.OpAcquire)
		f.Run(t.Context(), h)
		time.Sleep(700 * time.Millisecond) // the host first probes the server, and then calls it for the tick
		if st := must(h.Status().Timer("job")); st.Ticks != 1 || len(st.Skipped) != 0 {
			t.Fatalf("%d ticks, skipped %v: want one whose call to the store is in progress", st.Ticks, st.Skipped)
		}
		job.Schedule = schedule.After(time.Minute)
		if err := h.Update(job); err != nil {
			t.Fatal(err)
		}
		h.Link.Heal()
		time.Sleep(time.Hour)
		if n := len(s.all()); n < 50 {
			t.Errorf("%d runs in the hour after it: the next is due at %v", n, must(h.Status().Timer("job")).Next)
		}
		f.ended()
	})
}

// An Update that does not change the delay costs no call, because the next tick does not move.
//
// Fails when Update plans a tick immediately.
func TestFixedDelayUpdatedInTheDelay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var s spans
		job := timer.Timer{Name: "job", Schedule: schedule.After(10 * time.Hour), Run: s.always(time.Second)}
		f.start(timer.Config{}, job)
		c := newCountingStore(f.store, "timer:job")
		h := f.startOn(c, timer.Config{}, job)
		time.Sleep(time.Hour)
		before, next := c.calls(), must(h.Status().Timer("job")).Next
		for i := range 10 {
			job.MaxRunTime = time.Duration(i+1) * time.Minute
			for _, h := range f.Hosts {
				if err := h.Update(job); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Minute)
		}
		if got := must(h.Status().Timer("job")).Next; c.calls() != before || !got.Equal(next) {
			t.Errorf("%d calls in 10 updates, and due at %v: must be none, and %v", c.calls()-before, got, next)
		}
		time.Sleep(10 * time.Hour)
		f.ended()
		if n := s.gaps(t, 10*time.Hour, 10*time.Hour+time.Second); n != 2 {
			t.Errorf("%d runs, must be 2", n)
		}
	})
}

// A timer that waits for the end of a blackout starts immediately when Update removes the blackout.
//
// Fails when Update keeps every future tick.
func TestFixedDelayUpdatedInABlackout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		job := timer.Timer{Name: "job", Schedule: schedule.After(time.Minute), Run: f.handler(time.Second),
			Blackouts: []schedule.Blackout{schedule.Between(time.Now().Add(-time.Hour), time.Now().Add(8*time.Hour))}}
		h := f.start(timer.Config{}, job)
		time.Sleep(time.Hour)
		job.Blackouts = nil
		if err := h.Update(job); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if n, _ := f.runs("job"); n != 1 {
			t.Errorf("%d runs, must be 1", n)
		}
		f.ended()
	})
}
