package schedule_test

import (
	"fmt"
	"time"

	"github.com/tickslot/tickslot/schedule"
)

// Business days at eight: a daily schedule without weekends and holidays.
func ExampleExcept() {
	const zone = "Europe/Berlin"
	morning := schedule.Except(schedule.Daily("08:00", zone),
		schedule.Weekdays(zone, time.Saturday, time.Sunday),
		schedule.Dates(zone, "2027-05-06", "2027-05-17"),
	)
	tick := time.Date(2027, time.May, 4, 12, 0, 0, 0, time.UTC)
	for range 3 {
		tick = morning.Next(tick)
		fmt.Println(tick.Format(time.RFC1123))
	}
	// Output:
	// Wed, 05 May 2027 08:00:00 CEST
	// Fri, 07 May 2027 08:00:00 CEST
	// Mon, 10 May 2027 08:00:00 CEST
}
