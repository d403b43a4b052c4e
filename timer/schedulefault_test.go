package timer_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// A schedule that failed is called again after a minute, then after two, four and so on, up to an
// hour. In the meantime Status, metrics and health show the error. When the schedule works again,
// its ticks are due again, and the ticks in between count as missed.
//
// Fails when setNext does not plan another call, or when TimersSucceed ignores the error.
func TestScheduleThatFailedIsAskedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		reg := newRegistry()
		var log testkit.Log
		start := time.Now()
		var asked []time.Duration
		bad := false
		minutely := scheduleFunc(func(at time.Time) time.Time {
			since := time.Since(start)
			if since >= 10*time.Minute && since < 16*time.Minute || since >= 2*time.Hour && since < 8*time.Hour {
				if !bad {
					asked = append(asked, 0)
				}
				bad = true
				asked = append(asked, since.Round(time.Minute))
				panic("the calendar's service is down")
			}
			bad = false
			return at.Truncate(time.Minute).Add(time.Minute)
		})
		h := f.start(timer.Config{Registerer: reg, Logger: textLogger(&log)},
			timer.Timer{Name: "a", Schedule: minutely, Run: f.handler(0)},
			timer.Timer{Name: "b", Schedule: schedule.Every(time.Minute), Run: f.handler(0)})
		time.Sleep(9*time.Minute + 30*time.Second)
		if err := errors.Join(h.TimersSucceed(), h.Degraded()); err != nil ||
			values(t, reg)["tickslot_schedule_failed a"] != 0 {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		st, _ := h.Status().Timer("a")
		if !strings.Contains(st.ScheduleError, "the calendar's service is down") || !st.Next.IsZero() {
			t.Errorf("%+v", st)
		}
		v := values(t, reg)
		if failed, there := v["tickslot_schedule_failed a"]; failed != 1 || !there ||
			v["tickslot_schedule_failed b"] != 0 {
			t.Errorf("the metrics do not show it: %v", failed)
		}
		for name, err := range map[string]error{"TimersSucceed": h.TimersSucceed(), "Degraded": h.Degraded()} {
			if err == nil || !strings.Contains(err.Error(), `timer "a" is not due: its schedule failed`) ||
				!strings.Contains(err.Error(), "the calendar's service is down") {
				t.Errorf("%s: %v", name, err)
			}
		}
		time.Sleep(10 * time.Minute)
		if err := errors.Join(h.TimersSucceed(), h.Degraded()); err != nil ||
			values(t, reg)["tickslot_schedule_failed a"] != 0 {
			t.Error(err)
		}
		st, _ = h.Status().Timer("a")
		if st.ScheduleError != "" || st.Started < 10 || st.Ticks < 19 {
			t.Errorf("%+v", st)
		}
		time.Sleep(10*time.Hour - 20*time.Minute)
		f.Stop()
		_, skipped := h.Accounted(t)
		st, _ = h.Status().Timer("a")
		if st.Ticks < 599 || skipped[timer.ReasonMissed] < 300 || st.Started < 150 {
			t.Errorf("%+v", st)
		}
		t.Log(asked)
		if n := strings.Count(log.String(), "the schedule failed"); n != 2 {
			t.Errorf("%d lines about two failures:\n%s", n, log.String())
		}
		if len(asked) > 30 {
			t.Errorf("asked %d times", len(asked))
		}
	})
}
