package timer_test

import (
	"slices"
	"testing"
	"time"

	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// A page that has a Status, and a program that has only the schedule and the name, compute the same
// ticks, and the timer runs these ticks.
//
// Fails when NextTicks omits Next, or calls the schedule of another name.
func TestNextTicks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		began := time.Now()
		timers := map[string]schedule.Schedule{
			"grid":  schedule.Every(time.Hour),
			"daily": schedule.Except(schedule.Daily("02:30", "Europe/Berlin"), schedule.Weekdays("", time.Sunday)),
			"ends":  schedule.At(began.Add(time.Hour), began.Add(2*time.Hour)),
			"times": schedule.Times(3, began, schedule.Every(time.Hour)),
			"other": scheduleFunc(func(at time.Time) time.Time { return at.Truncate(time.Minute).Add(time.Minute) }),
		}
		var list []timer.Timer
		for name, s := range timers {
			list = append(list, timer.Timer{Name: name, Schedule: s, Run: f.handler(0)})
		}
		h := f.start(timer.Config{}, append(list, timer.Timer{Name: "triggered", Run: f.handler(0)})...)
		for name, s := range timers {
			st := must(h.Status().Timer(name))
			got, err := st.NextTicks(3)
			want, elsewhere := schedule.NextTicks(schedule.ForName(s, name), time.Now(), 3)
			if err != nil || elsewhere != nil || len(got) == 0 || !got[0].Equal(st.Next) ||
				!slices.EqualFunc(got, want, time.Time.Equal) {
				t.Errorf("%s: %v, %v; next is %v, and elsewhere they are %v, %v", name, got, err, st.Next, want,
					elsewhere)
			}
			if name == "ends" && len(got) != 2 || name != "ends" && len(got) != 3 {
				t.Errorf("%s: %v", name, got)
			}
			if none, err := st.NextTicks(0); err != nil || len(none) != 0 {
				t.Errorf("%s: 0 ticks are %v, %v", name, none, err)
			}
			for _, n := range []int{-1, schedule.MaxNextTicks + 1} {
				if got, err := st.NextTicks(n); err == nil || got != nil {
					t.Errorf("%s: %d ticks are %v, want an error", name, n, got)
				}
			}
		}
		for _, st := range []timer.TimerStatus{must(h.Status().Timer("triggered")), {}} {
			if got, err := st.NextTicks(3); err != nil || len(got) != 0 {
				t.Errorf("no schedule: %v, %v", got, err)
			}
			if _, err := st.NextTicks(-1); err == nil {
				t.Error("-1 ticks of no schedule are no error")
			}
		}
		grid, err := must(h.Status().Timer("grid")).NextTicks(3)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Hour)
		for _, tick := range grid {
			if f.watch.startsOf("grid", tick) != 1 {
				t.Errorf("%v was not due, want it due", tick)
			}
		}
		f.Stop()
	})
}
