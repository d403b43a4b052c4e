package timer_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// A host reports its decisions about the latest ticks, newest first. Each has the reason why the
// tick did not run on this host, or how the run ended. The host keeps no more decisions than
// documented.
//
// Fails when remembered begins with the oldest, or omits the errors.
func TestDecisions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		n := 0
		h := f.start(timer.Config{Holder: dlock.Holder{Host: "me", PID: 1, ID: "x"}}, timer.Timer{
			Name: "a", Schedule: schedule.Every(time.Minute), MaxConcurrency: 1, Run: func(ctx context.Context) error {
				n++
				switch n {
				case 1:
					return errors.New("no paper")
				case 2:
					<-time.After(90 * time.Second)
					return nil
				}
				<-ctx.Done()
				return nil
			}})
		time.Sleep(3 * time.Minute) // the first tick runs, the second runs for long, and the third finds all slots held
		if err := h.Control().Pause(t.Context(), "a", time.Now().Add(time.Hour), ann); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		list := h.Status().Timers[0].Decisions()
		if len(list) != 4 {
			t.Fatal(list)
		}
		for i, want := range []struct {
			reason timer.Reason
			says   string
		}{
			{timer.ReasonPaused, "paused by ann: the database is being moved (for another "},
			{timer.ReasonHostFull, "MaxPerHost (1) runs were active"},
			{"", "in slot 0, from "},
			{"", "error: no paper"},
		} {
			x := list[i]
			if strings.Contains(x.Text, "me/1/x") || strings.Contains(x.Text, "timer:a") {
				t.Errorf("%q repeats what is known", x.Text)
			}
			if !x.Known || x.Reason != want.reason || !strings.Contains(x.Text, want.says) || x.Timer != "a" ||
				i > 0 && list[i-1].Tick.Sub(x.Tick) != time.Minute {
				t.Errorf("%d: %+v: no %q", i, x, want.says)
			}
			if strings.Contains(x.Text, "2000-01-01") != (want.reason == "" || want.reason == timer.ReasonPaused) {
				t.Errorf("%q", x.Text)
			}
		}
		if r := list[2].Run; r == nil || r.Took != 90*time.Second || r.Outcome != timer.OutcomeOK ||
			list[2].Slot != 0 {
			t.Errorf("%+v", list[2])
		}
		time.Sleep(20 * time.Minute)
		if n := len(h.Status().Timers[0].Decisions()); n != 16 {
			t.Errorf("%d are remembered", n)
		}
		f.Stop()
	})
	if list := (timer.TimerStatus{}).Decisions(); list != nil {
		t.Error(list)
	}
}
