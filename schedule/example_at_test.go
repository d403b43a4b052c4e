package schedule_test

import (
	"fmt"
	"time"

	"github.com/tickslot/tickslot/schedule"
)

// A migration starts on a given day, and its second part starts a week later.
func ExampleAt() {
	begin := time.Date(2027, time.May, 3, 20, 0, 0, 0, time.UTC)
	migrate := schedule.At(begin, begin.AddDate(0, 0, 7))
	for tick := migrate.Next(begin.Add(-time.Hour)); !tick.IsZero(); tick = migrate.Next(tick) {
		fmt.Println(tick.Format(time.DateTime))
	}
	// Output:
	// 2027-05-03 20:00:00
	// 2027-05-10 20:00:00
}
