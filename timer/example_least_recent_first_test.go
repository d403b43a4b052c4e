package timer_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// A host that ran the latest tick yields for a few milliseconds, so that another host gets the next
// tick. No tick is lost.
func ExampleTimer_leastRecentFirst() {
	store := memlock.New()
	ticks := make(chan time.Time, 1000)
	host := func() *timer.Scheduler {
		timers, err := timer.New(timer.Config{Store: store}, timer.Timer{
			Name:             "import-feeds",
			Schedule:         schedule.Every(20 * time.Millisecond),
			LeastRecentFirst: true,
			Run: func(ctx context.Context) error {
				run, _ := timer.RunFromContext(ctx)
				ticks <- run.Tick()
				return nil
			},
		})
		if err != nil {
			panic(err)
		}
		return timers
	}
	stop := start(host(), host(), host())
	defer stop()

	seen := map[time.Time]bool{}
	for range 5 {
		seen[<-ticks] = true
	}
	fmt.Println("5 runs,", len(seen), "ticks")
	// Output: 5 runs, 5 ticks
}
