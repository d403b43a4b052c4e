package timer_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// There are three hosts and three slots, but each tick starts only one run in the fleet. With
// MaxPerTick: 3 each host would start one.
func ExampleTimer_maxPerTick() {
	store := memlock.New()
	ticks := make(chan time.Time, 100)
	host := func() *timer.Scheduler {
		timers, err := timer.New(timer.Config{Store: store}, timer.Timer{
			Name:           "send-digest",
			Schedule:       schedule.Every(20 * time.Millisecond),
			MaxConcurrency: 3, // a slow run does not delay the next tick
			MaxPerTick:     1, // each tick runs once in the fleet
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

	seen := map[time.Time]int{}
	for range 4 {
		seen[<-ticks]++
	}
	fmt.Println("4 runs,", len(seen), "ticks")
	// Output: 4 runs, 4 ticks
}
