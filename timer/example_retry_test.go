package timer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/timer"
)

// A run that fails is retried in its slot, unless its error says that another attempt would not
// help.
func ExampleRetry() {
	errBusy, errNoSuchOrder := errors.New("the service is busy"), errors.New("no such order")
	timers, err := timer.New(timer.Config{Store: memlock.New()},
		timer.Timer{
			Name:       "call-service",
			MaxRunTime: time.Minute, // for all attempts and waits together
			Retry:      timer.Retry{MaxAttempts: 5, FirstWait: 20 * time.Millisecond},
			Run: func(ctx context.Context) error {
				if run, _ := timer.RunFromContext(ctx); run.Attempt() < 3 {
					return errBusy
				}
				return nil
			},
		},
		timer.Timer{
			Name:  "ship-order",
			Retry: timer.Retry{MaxAttempts: 5},
			Run:   func(context.Context) error { return timer.Permanent(errNoSuchOrder) },
		},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	stop := start(timers)
	for _, name := range []string{"call-service", "ship-order"} {
		if _, err := timers.Trigger(context.Background(), name, timer.TriggerOptions{}); err != nil {
			fmt.Println(err)
		}
		for {
			if st, _ := timers.Status().Timer(name); st.Last != nil {
				fmt.Println(name, "ended:", st.Last.Outcome, "after", st.Last.Attempt, "attempts, error:", st.Last.Err)
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	stop()
	// Output:
	// call-service ended: ok after 3 attempts, error: <nil>
	// ship-order ended: error after 1 attempts, error: no such order
}
