package schedule_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/schedule"
)

// stuck always returns the same instant.
type stuck struct{}

func (stuck) Next(time.Time) time.Time { return time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC) }

// Fails when NextTicks accepts an n out of range, or returns no error for a schedule that fails.
func TestNextTicksRefuses(t *testing.T) {
	from := time.Date(2026, 6, 30, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		s    schedule.Schedule
		n    int
		want string
	}{
		{schedule.Every(time.Hour), -1, "use 0 to 10000"},
		{nil, -1, "use 0 to 10000"},
		{schedule.Every(time.Hour), schedule.MaxNextTicks + 1, "use 0 to 10000"},
		{stuck{}, 2, "which is not later"},
	} {
		if ticks, err := schedule.NextTicks(c.s, from, c.n); ticks != nil || err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, %d: %v, %v; want %q", c.s, c.n, ticks, err, c.want)
		}
	}
	if ticks, err := schedule.NextTicks(schedule.Every(time.Hour), from, schedule.MaxNextTicks); err != nil ||
		len(ticks) != schedule.MaxNextTicks {
		t.Errorf("%d ticks, %v", len(ticks), err)
	}
	for _, s := range []schedule.Schedule{nil, schedule.At(from)} {
		if ticks, err := schedule.NextTicks(s, from, 5); err != nil || len(ticks) != 0 {
			t.Errorf("%v: %v, %v; want none", s, ticks, err)
		}
	}
}

// A program computes the ticks of a timer that it does not run.
func ExampleNextTicks() {
	now := time.Date(2026, time.July, 1, 8, 0, 0, 0, time.UTC)
	ticks, err := schedule.NextTicks(schedule.ForName(schedule.Every(time.Hour), "process-orders"), now, 3)
	fmt.Println(len(ticks), err)
	for _, tick := range ticks {
		fmt.Println(tick.Format(time.TimeOnly))
	}
	// Output:
	// 3 <nil>
	// 08:00:09
	// 09:00:09
	// 10:00:09
}
