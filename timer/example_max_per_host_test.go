package timer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/timer"
)

// The fleet has ten slots, but no host takes more than one of them.
func ExampleTimer_maxPerHost() {
	store := memlock.New()
	release := make(chan struct{})
	host := func() *timer.Scheduler {
		timers, err := timer.New(timer.Config{Store: store}, timer.Timer{
			Name:           "transcode-video",
			MaxConcurrency: 10,
			MaxPerHost:     1,
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

	_, err := a.Trigger(context.Background(), "transcode-video", timer.TriggerOptions{})
	fmt.Println("a:", err)
	_, err = a.Trigger(context.Background(), "transcode-video", timer.TriggerOptions{})
	if refused, ok := errors.AsType[*timer.RefusedError](err); ok {
		fmt.Println("a:", refused.Reason)
	}
	_, err = b.Trigger(context.Background(), "transcode-video", timer.TriggerOptions{})
	fmt.Println("b:", err)
	close(release)
	// Output:
	// a: <nil>
	// a: host_full
	// b: <nil>
}
