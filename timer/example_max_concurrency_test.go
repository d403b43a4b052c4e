package timer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/timer"
)

// Two hosts share a store, and therefore three slots. The fourth run is refused, whichever host
// tries it.
func ExampleTimer_maxConcurrency() {
	store := memlock.New() // on several machines, use redislock.New(rdb, redislock.Options{})
	release := make(chan struct{})
	host := func() *timer.Scheduler {
		timers, err := timer.New(timer.Config{Store: store}, timer.Timer{
			Name:           "resize-images",
			MaxConcurrency: 3,
			Run:            func(context.Context) error { <-release; return nil },
		})
		if err != nil {
			panic(err)
		}
		return timers
	}
	a, b := host(), host()
	stop := start(a, b)
	defer stop()

	for _, timers := range []*timer.Scheduler{a, b, a, b} {
		_, err := timers.Trigger(context.Background(), "resize-images", timer.TriggerOptions{})
		if refused, ok := errors.AsType[*timer.RefusedError](err); ok {
			fmt.Println("refused:", refused.Reason)
		} else {
			fmt.Println("started:", err == nil)
		}
	}
	close(release)
	// Output:
	// started: true
	// started: true
	// started: true
	// refused: full
}
