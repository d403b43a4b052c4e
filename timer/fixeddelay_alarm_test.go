package timer_test

import (
	"context"
	"testing"
	"time"

	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
	"github.com/tickslot/tickslot/timer/control"
)

// A handler that ignores its context raises the alarm of AlarmAfter, as with Every.
//
// Fails when the next tick is postponed for as long as a run is in progress, however long that is.
func TestFixedDelayAlarmsAboutAHandlerThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		release := make(chan struct{})
		h := f.start(timer.Config{}, timer.Timer{Name: "job", Schedule: schedule.After(time.Minute),
			MaxRunTime: 2 * time.Minute, Run: func(context.Context) error { <-release; return nil }})
		time.Sleep(119 * time.Second)
		if st := must(h.Status().Timer("job")); st.Ticks != 1 {
			t.Errorf("%d ticks while the run is within its MaxRunTime", st.Ticks)
		}
		time.Sleep(7 * time.Minute)
		if h.TimersSucceed() == nil {
			t.Errorf("no alarm: %d ticks without a success", must(h.Status().Timer("job")).TicksSinceSuccess)
		}
		close(release)
		time.Sleep(2 * time.Minute)
		if err := h.TimersSucceed(); err != nil {
			t.Errorf("after the run has ended: %v", err)
		}
		f.ended()
	})
}

// A clock that was ahead and is corrected does not suppress the alarm.
//
// Fails when every tick before the latest tick that counted is treated as a retry.
func TestFixedDelayAlarmsAfterTheClockIsSetBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(timer.Config{}, timer.Timer{Name: "other", Run: nop})
		timer.SetSkew(h.Scheduler, 24*time.Hour)
		if err := h.Register(timer.Timer{Name: "job", Schedule: schedule.After(time.Minute), Run: nop}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		timer.SetSkew(h.Scheduler, 0)
		timer.Poke(h.Scheduler)
		time.Sleep(time.Minute)
		ctl := control.New(control.Config{Store: f.store})
		if err := ctl.Pause(t.Context(), "job", time.Now().Add(time.Hour), ann); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if h.TimersSucceed() == nil {
			t.Errorf("no alarm in a pause: %d ticks without a success", must(h.Status().Timer("job")).TicksSinceSuccess)
		}
		f.ended()
	})
}

// While a run is in progress on another host, this host calls the store no more often with FullWait
// than without, because no run may start when that run ends.
//
// Fails when a tick waits for a run of its own timer.
func TestFixedDelayCallsNothingWhileARunGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var s spans
		job := timer.Timer{Name: "job", Schedule: schedule.After(time.Hour), OnFull: timer.FullWait,
			Run: s.always(20 * time.Minute)}
		calls := make([]*countingStore, 2)
		for i := range calls {
			calls[i] = newCountingStore(f.store, "timer:job")
			f.startOn(calls[i], rarely, job)
		}
		time.Sleep(24 * time.Hour)
		f.ended()
		runs := s.gaps(t, time.Hour, time.Hour+time.Millisecond)
		for i, c := range calls {
			if runs < 18 || c.calls() > 3*runs {
				t.Errorf("host %d made %d calls for %d runs in a day", i, c.calls(), runs)
			}
		}
	})
}
