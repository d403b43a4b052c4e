package schedule_test

import (
	"fmt"
	"time"

	"github.com/tickslot/tickslot/schedule"
)

// The next run is due ten minutes after the previous one ends, however long that run took.
func ExampleAfter() {
	s := schedule.After(10 * time.Minute)
	ended := time.Date(2026, time.March, 2, 12, 3, 20, 0, time.UTC)
	fmt.Println(s)
	fmt.Println(s.Next(ended).Format(time.TimeOnly))
	// Output:
	// 10m0s after the end of a run
	// 12:13:20
}
