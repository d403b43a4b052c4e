package timer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/timer"
)

// If a run takes too long, its context ends, and its slot is no longer renewed.
func ExampleTimer_maxRunTime() {
	ended := make(chan error, 1)
	timers, err := timer.New(timer.Config{Store: memlock.New()}, timer.Timer{
		Name:       "call-slow-service",
		MaxRunTime: 20 * time.Millisecond,
		Run: func(ctx context.Context) error {
			<-ctx.Done() // a call that takes ctx would return now
			ended <- context.Cause(ctx)
			return context.Cause(ctx)
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	stop := start(timers)
	_, err = timers.Trigger(context.Background(), "call-slow-service", timer.TriggerOptions{})
	fmt.Println("started:", err == nil)
	fmt.Println("too long:", errors.Is(<-ended, timer.ErrMaxRunTime))
	stop()

	slow, _ := timers.Status().Timer("call-slow-service")
	fmt.Println("outcome:", slow.Last.Outcome)
	// Output:
	// started: true
	// too long: true
	// outcome: timeout
}
