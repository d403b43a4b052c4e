package schedule_test

import (
	"fmt"
	"time"

	"github.com/tickslot/tickslot/schedule"
)

// A reminder is due on three mornings. The clocks change before the second one. All hosts count
// from the same instant, so they agree on the last tick.
func ExampleTimes() {
	launch := time.Date(2027, time.March, 27, 0, 0, 0, 0, time.UTC)
	remind := schedule.Times(3, launch, schedule.Daily("08:00", "Europe/Berlin"))
	for tick := remind.Next(launch); !tick.IsZero(); tick = remind.Next(tick) {
		fmt.Println(tick.UTC().Format(time.DateTime))
	}
	// Output:
	// 2027-03-27 07:00:00
	// 2027-03-28 06:00:00
	// 2027-03-29 06:00:00
}
