package schedule_test

import (
	"fmt"
	"time"

	"github.com/tickslot/tickslot/schedule"
)

// A time that clocks skip in spring is due right after the gap. A time that clocks show twice in
// autumn is due once.
func ExampleCron() {
	nightly := schedule.Cron("30 2 * * *", "Europe/Berlin")
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

// An expression comes from a table, a file or a form. Its author gets the error with the position
// of the fault.
func ExampleParseCron() {
	if _, err := schedule.ParseCron("0 25 * * *", "Europe/Berlin"); err != nil {
		fmt.Println(err)
	}
	nightly, err := schedule.ParseCron("0 2 * * *", "Europe/Berlin")
	fmt.Println(nightly, err)
	// Output:
	// cron "0 25 * * *": hour: "25" is not one of its values: use 0 to 23
	// 	0 25 * * *
	// 	  ^
	// cron "0 2 * * *" in Europe/Berlin <nil>
}

// Check returns all faults of a schedule at once, each with its position. timer.New calls Check for
// every timer.
func ExampleCheck() {
	const zone = "Europe/Berlin"
	report := schedule.Except(schedule.Cron("0 2,26 * * *", zone), schedule.Dates(zone, "2027-02-30"))
	for _, fault := range schedule.Check(report) {
		fmt.Println(fault)
	}
	for _, fault := range schedule.Check(schedule.Cron("0 2 30 2 *", zone)) {
		fmt.Println(fault)
	}
	// Output:
	// cron "0 2,26 * * *": hour: "26" is not one of its values: use 0 to 23
	// 	0 2,26 * * *
	// 	    ^
	// Dates "2027-02-30": this month has no such day
	// 	2027-02-30
	// 	        ^
	// cron "0 2 30 2 *": it never fires, because there is no such date: change the day of month or the month
	// 	0 2 30 2 *
	// 	    ^
}
