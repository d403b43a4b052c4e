package schedule_test

import (
	"fmt"
	"time"

	"github.com/tickslot/tickslot/schedule"
)

// Hosts agree on every tick without communicating, because the ticks follow from the period and the
// name. Timers with the same period but different names are not due at the same instant. A timer
// passes its own name to its schedule.
func ExampleEvery() {
	noon := time.Date(2027, time.May, 3, 12, 0, 0, 0, time.UTC)
	next := func(name string, asked time.Time) time.Time {
		return schedule.ForName(schedule.Every(24*time.Hour), name).Next(asked)
	}
	fmt.Println("two hosts:", next("rotate-logs", noon).Equal(next("rotate-logs", noon.Add(time.Hour))))
	fmt.Println("two timers:", next("rotate-logs", noon).Equal(next("send-digest", noon)))
	// Output:
	// two hosts: true
	// two timers: false
}
