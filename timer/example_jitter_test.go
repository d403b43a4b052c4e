package timer_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// In this example, Jitter delays each tick by up to half of the period, by the same amount on every
// host. The tick is still the instant on the grid.
func ExampleTimer_delayJitter() {
	type start struct{ tick, at time.Time }
	starts := make(chan start, 100)
	timers, err := timer.New(timer.Config{}, timer.Timer{
		Name:     "poll-suppliers",
		Schedule: schedule.Every(40 * time.Millisecond).Offset(0),
		Delay:    timer.Delay{Jitter: 0.5},
		Run: func(ctx context.Context) error {
			run, _ := timer.RunFromContext(ctx)
			starts <- start{run.Tick(), time.Now()}
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- timers.Run(ctx) }()
	for range 3 {
		s := <-starts
		fmt.Println("on the grid:", s.tick.UnixMilli()%40 == 0, "early:", s.at.Before(s.tick))
	}
	cancel()
	fmt.Println(<-done)
	// Output:
	// on the grid: true early: false
	// on the grid: true early: false
	// on the grid: true early: false
	// <nil>
}
