package schedule_test

import (
	"fmt"
	"time"

	"github.com/tickslot/tickslot/schedule"
)

// This example shows one schedule of each kind.
func Example() {
	const zone = "Europe/Berlin"
	launch := time.Date(2027, time.May, 3, 6, 0, 0, 0, time.UTC)
	for _, s := range []schedule.Schedule{
		schedule.Every(30 * time.Second),                         // on a grid that all hosts share
		schedule.Daily("02:30", zone),                            // once a day in a time zone
		schedule.Cron("0 8 * * MON-FRI", "America/New_York"),     // a cron expression
		schedule.After(10 * time.Minute),                         // a pause after each run
		schedule.At(launch, launch.AddDate(0, 0, 7)),             // at fixed times, then never again
		schedule.Times(3, launch, schedule.Daily("08:00", zone)), // three mornings, then never again
		schedule.Except(schedule.Daily("08:00", zone), // business days
			schedule.Weekdays(zone, time.Saturday, time.Sunday), schedule.Dates(zone, "2026-12-25")),
	} {
		fmt.Println(s)
	}
	// Output:
	// every 30s
	// daily at 02:30 in Europe/Berlin
	// cron "0 8 * * MON-FRI" in America/New_York
	// 10m0s after the end of a run
	// at 2027-05-03T06:00:00Z, 2027-05-10T06:00:00Z
	// daily at 08:00 in Europe/Berlin, 3 times from 2027-05-03T06:00:00Z
	// daily at 08:00 in Europe/Berlin, except Saturday, Sunday in Europe/Berlin, 2026-12-25 in Europe/Berlin
}
