package schedule_test

import (
	"fmt"
	"time"

	"github.com/tickslot/tickslot/schedule"
)

// This window spans midnight. On the night when clocks are set forward, it is an hour shorter.
func ExampleDailyWindow() {
	night := schedule.DailyWindow("22:00", "06:00", "Europe/Berlin")
	saturday := time.Date(2027, time.March, 27, 22, 0, 0, 0, time.FixedZone("CET", 3600))
	until := night.Until(saturday)
	fmt.Println(until.Format(time.RFC1123), "after", until.Sub(saturday))
	fmt.Println("in it at six:", !night.Until(until).IsZero())
	// Output:
	// Sun, 28 Mar 2027 06:00:00 CEST after 7h0m0s
	// in it at six: false
}

// A BlackoutFunc can express rules that no window can. It must return the same result on every
// host.
func ExampleBlackoutFunc() {
	fullHours := schedule.BlackoutFunc(func(t time.Time) bool { return t.Minute() == 0 })
	often := schedule.Except(schedule.Cron("*/20 * * * *", ""), fullHours)
	tick := time.Date(2027, time.May, 4, 12, 0, 0, 0, time.UTC)
	for range 3 {
		tick = often.Next(tick)
		fmt.Println(tick.Format(time.TimeOnly))
	}
	// Output:
	// 12:20:00
	// 12:40:00
	// 13:20:00
}

// A freeze over the holidays is a user-defined Blackout. Until returns the end of the freeze, or
// the zero time outside it.
func ExampleBlackout() {
	var freeze schedule.Blackout = schedule.Between(
		time.Date(2026, time.December, 23, 18, 0, 0, 0, time.UTC),
		time.Date(2027, time.January, 4, 8, 0, 0, 0, time.UTC),
	)
	fmt.Println(freeze.Until(time.Date(2026, time.December, 31, 0, 0, 0, 0, time.UTC)).Format(time.DateTime))
	fmt.Println(freeze.Until(time.Date(2027, time.January, 4, 8, 0, 0, 0, time.UTC)).IsZero())
	// Output:
	// 2027-01-04 08:00:00
	// true
}
