package timer_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// The next run in the fleet starts 20 ms after the previous run ends, however long that run took.
func ExampleTimer_fixedDelay() {
	ctx, cancel := context.WithCancel(context.Background())
	var ended time.Time
	run := 0
	timers, err := timer.New(timer.Config{Store: memlock.New()}, timer.Timer{
		Name:     "import",
		Schedule: schedule.After(20 * time.Millisecond),
		Run: func(context.Context) error {
			if run++; run > 1 {
				fmt.Println("20 ms or more after the last one:", time.Since(ended) >= 20*time.Millisecond)
			}
			if run == 3 {
				cancel()
			}
			ended = time.Now()
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(timers.Run(ctx))
	// Output:
	// 20 ms or more after the last one: true
	// 20 ms or more after the last one: true
	// <nil>
}
