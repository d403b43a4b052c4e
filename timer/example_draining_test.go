package timer_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// When its context ends, Run starts nothing more, waits for the handlers, gives the slots back and
// returns. A handler's own context does not end with it, unless it takes longer than DrainTimeout.
func ExampleScheduler_Run() {
	ctx, stop := context.WithCancel(context.Background()) // in a main: signal.NotifyContext
	defer stop()

	finished := false
	timers, err := timer.New(timer.Config{Store: memlock.New(), DrainTimeout: 20 * time.Second}, timer.Timer{
		Name:     "process-orders",
		Schedule: schedule.Every(20 * time.Millisecond),
		Run: func(ctx context.Context) error {
			stop()                            // as if SIGTERM came now
			time.Sleep(10 * time.Millisecond) // the work that is left
			finished = ctx.Err() == nil
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = timers.Run(ctx)
	fmt.Println("finished undisturbed:", finished)
	fmt.Println("Run returned:", err)
	// Output:
	// finished undisturbed: true
	// Run returned: <nil>
}
