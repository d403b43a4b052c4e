package timer_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/timer"
)

// A time that the clocks skip in spring is due right after the gap; one that they show twice in autumn is due once.
func ExampleCron() {
	nightly := timer.Cron("30 2 * * *", "Europe/Berlin")
	for _, day := range []time.Time{
		time.Date(2027, time.March, 27, 12, 0, 0, 0, time.UTC),
		time.Date(2027, time.October, 30, 12, 0, 0, 0, time.UTC),
	} {
		for range 2 {
			day = nightly.Next(day)
			fmt.Println(day.Format("02 Jan 15:04 MST"))
		}
	}
	// Output:
	// 28 Mar 03:00 CEST
	// 29 Mar 02:30 CEST
	// 31 Oct 02:30 CEST
	// 01 Nov 02:30 CET
}

// Whatever is wrong comes back when the timers are registered, with the place.
func ExampleCron_faults() {
	report := func(context.Context) error { return nil }
	_, err := timer.New(timer.Config{},
		timer.Timer{Name: "report", Run: report, Schedule: timer.Cron("0 2,26 * * *", "Europe/Berlin")},
		timer.Timer{Name: "invoices", Run: report, Schedule: timer.Cron("0 2 30 2 *", "Europe/Berlin")},
	)
	fmt.Println(err)
	// Output:
	// timer "report": Schedule: cron "0 2,26 * * *": hour: "26" is not one of its values: use 0 to 23
	// 	0 2,26 * * *
	// 	    ^
	// timer "invoices": Schedule: cron "0 2 30 2 *": it never fires, because there is no such date: mend the day of month or the month
	// 	0 2 30 2 *
	// 	    ^
}
