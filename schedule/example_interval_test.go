package schedule_test

import (
	"fmt"
	"time"

	"github.com/tickslot/tickslot/schedule"
)

// Two intervals that the name does not shift: every day at 03:00 UTC, and every second Monday.
func ExampleInterval() {
	tick := time.Date(2027, time.May, 1, 12, 0, 0, 0, time.UTC)
	fmt.Println(schedule.Every(24 * time.Hour).Offset(3 * time.Hour).Next(tick).Format(time.RFC1123))

	sprint := schedule.Every(14 * 24 * time.Hour).From(time.Date(2027, time.May, 3, 9, 0, 0, 0, time.UTC))
	for range 2 {
		tick = sprint.Next(tick)
		fmt.Println(tick.Format(time.RFC1123))
	}
	// Output:
	// Sun, 02 May 2027 03:00:00 UTC
	// Mon, 03 May 2027 09:00:00 UTC
	// Mon, 17 May 2027 09:00:00 UTC
}
