package schedule_test

import (
	"fmt"
	"time"

	"github.com/tickslot/tickslot/schedule"
)

// A backup runs at half past two in the morning in the time zone of its users.
func ExampleDaily() {
	backup := schedule.Daily("02:30", "America/New_York")
	next := backup.Next(time.Date(2027, time.May, 3, 12, 0, 0, 0, time.UTC))
	fmt.Println(backup)
	fmt.Println(next.Format(time.RFC1123), "is", next.UTC().Format(time.RFC1123))
	// Output:
	// daily at 02:30 in America/New_York
	// Tue, 04 May 2027 02:30:00 EDT is Tue, 04 May 2027 06:30:00 UTC
}
