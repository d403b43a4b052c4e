package schedule_test

import (
	"fmt"
	"time"

	"github.com/tickslot/tickslot/schedule"
)

// workdays is due once a day at that hour, except on weekends. It computes in UTC, because the
// result must not depend on the host's time zone.
type workdays struct{ hour int }

func (w workdays) Next(t time.Time) time.Time {
	year, month, day := t.UTC().Date()
	for {
		next := time.Date(year, month, day, w.hour, 0, 0, 0, time.UTC)
		if next.After(t) && next.Weekday() != time.Saturday && next.Weekday() != time.Sunday {
			return next
		}
		day++
	}
}

// Any type with a Next method is a schedule, including the schedules of robfig/cron.
func ExampleSchedule() {
	var morning schedule.Schedule = workdays{hour: 9}
	fmt.Println("faults:", len(schedule.Check(morning)), schedule.CheckShared(morning))

	friday := time.Date(2027, time.January, 1, 12, 0, 0, 0, time.UTC)
	fmt.Println("after", friday.Format(time.RFC850))
	fmt.Println("comes", morning.Next(friday).Format(time.RFC850))
	// Output:
	// faults: 0 <nil>
	// after Friday, 01-Jan-27 12:00:00 UTC
	// comes Monday, 04-Jan-27 09:00:00 UTC
}
